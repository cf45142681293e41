"""Arrow without pandas: importing pandas takes longer than all else that a small run does."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType


def arrow_in_task() -> None:
    """Set up Arrow in a task of Spark: no pandas, and one thread, as other tasks run beside it."""
    import pyarrow as pa  # noqa: PLC0415

    arrow_without_pandas()
    pa.set_cpu_count(1)


def arrow_without_pandas() -> None:
    """Import Arrow so that it does not import pandas by itself.

    Arrow looks for pandas once, at the first Python value that it converts. Here it finds none. It
    finds pandas as soon as something else imports it, as Spark Connect and code of users may do.
    """
    import pyarrow as pa  # noqa: PLC0415

    is_done = any(isinstance(finder, _PandasFinder) for finder in sys.meta_path)
    if is_done or "pandas" in sys.modules:
        return
    finder = _PandasFinder()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        finder.is_hidden = False


class _PandasFinder:
    """Hides pandas, and later tells Arrow of it."""

    is_hidden = True

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != "pandas":
            return None
        if self.is_hidden:
            raise ModuleNotFoundError(name)
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _call_after(spec.loader)
        return spec


def _call_after(loader: object) -> None:
    """Let Arrow look for pandas again once its module has been executed."""
    import pyarrow as pa  # noqa: PLC0415

    execute = loader.exec_module  # type: ignore[attr-defined]

    def exec_module(module: ModuleType) -> None:
        execute(module)
        pa.nulls(0).to_pandas()

    loader.exec_module = exec_module  # type: ignore[attr-defined]
