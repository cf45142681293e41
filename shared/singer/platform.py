"""Machinery against the platform: what Python, Arrow and the C library do by themselves.

1. `arrow_without_pandas`, `map_without_pandas`, `ask_without_numpy`: importing pandas takes longer
   than all else that a small run does.
2. `keep_zip_directories`, `freeze_imports`: PySpark lets Python read the directories of its zips
   before each task, and look at all objects after it.
3. `return_memory_early`, `keep_blocks`: allocators keep memory that is free, each thread its own.
4. `run_to_exit`: Python's finalization aborts or hangs if a thread of Arrow is still at work.
5. `usable_cores`: Python counts the cores of the machine, not those of a container.
6. `see_current_folder`: console scripts do not import from it, and `python -m` does.

Imports nothing of this project, so that it can be sent to workers by value.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib.util
import logging
import math
import os
import sys
import zipimport
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from importlib.machinery import ModuleSpec
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any


def arrow_in_task() -> None:
    """Set up Arrow in a task of Spark: no pandas, and one thread, as other tasks run beside it.

    Later tasks of the same process cost less; see `keep_zip_directories`, `freeze_imports`,
    `keep_blocks`.
    """
    import pyarrow as pa  # noqa: PLC0415

    if "pyspark.worker" in sys.modules:
        keep_zip_directories()
        freeze_imports()
        keep_blocks(os.environ)
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


def map_without_pandas() -> None:
    """Let PySpark build the function of `mapInArrow` without importing pandas.

    It shares the builder with `pandas_udf`, which asks for pandas first; nothing after that needs
    it, neither here nor in a task, in PySpark 3.5 to 4.3.
    """
    from pyspark.sql.pandas import functions  # noqa: PLC0415

    functions.require_minimum_pandas_version = lambda: None  # type: ignore[attr-defined]


def ask_without_numpy() -> None:
    """Let PySpark look for values of NumPy among arguments without importing its test helpers.

    In 4.1, these import unittest and pandas, which takes longer than all other imports.
    """
    from pyspark.sql import types  # noqa: PLC0415

    for name in ("NumpyScalarConverter", "NumpyArrayConverter"):
        converter = getattr(types, name, None)
        if converter is not None and converter.can_convert.__module__ == types.__name__:
            converter.can_convert = _if_of_numpy(converter.can_convert)


def _if_of_numpy(can_convert: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def can(converter: Any, value: Any) -> bool:
        is_of_numpy = any(kind.__module__ == "numpy" for kind in type(value).__mro__)
        return is_of_numpy and can_convert(converter, value)

    return can


def keep_zip_directories() -> None:
    """Read the directory of a zip on the path again only if the file has changed.

    PySpark calls `importlib.invalidate_caches` before each task, and the path of its workers has
    zips and a large jar: until Python 3.12, that reads all their directories (40 ms).
    """
    for finder in list(sys.path_importer_cache.values()):
        if isinstance(finder, zipimport.zipimporter) and "invalidate_caches" not in vars(finder):
            vars(finder)["invalidate_caches"] = _if_changed(finder)


_FROZEN = "singer_spark_frozen"


def freeze_imports() -> None:
    """Let `gc.collect`, which PySpark's workers call after each task (9 ms), skip imported objects.

    Does nothing in other processes.
    """
    worker = sys.modules.get("pyspark.worker")
    # Marked there, as this module comes anew with each task. Python would count what is frozen.
    if worker is not None and not hasattr(worker, _FROZEN):
        setattr(worker, _FROZEN, True)
        gc.freeze()


def _if_changed(finder: zipimport.zipimporter) -> Callable[[], None]:
    read, last = finder.invalidate_caches, _version_of(finder.archive)

    def invalidate_caches() -> None:
        nonlocal last
        now = _version_of(finder.archive)
        if now != last:
            last = now
            read()

    return invalidate_caches


def _version_of(path: str) -> tuple[int, ...] | None:
    with suppress(OSError):
        status = Path(path).stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None


MAPPED_BYTES = 4 * 1024 * 1024
"""Bytes from which the C library maps a block by itself, and unmaps it if freed. Left alone, it
raises this bound up to 32 MiB as blocks are freed, and then keeps such blocks in each thread."""

KEPT_BYTES = 16 * 1024 * 1024
"""The same in workers of Spark: more than the lines that are parsed at once."""

PURGE_DELAY = 30
"""Milliseconds after which Arrow's allocator returns memory, instead of 1,000."""

_MAPPED_VARIABLE, _PURGE_VARIABLE = "MALLOC_MMAP_THRESHOLD_", "MIMALLOC_PURGE_DELAY"
_KEPT_VARIABLE = "MALLOC_TRIM_THRESHOLD_"
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1


def return_memory_early(environ: MutableMapping[str, str], mapped: int = MAPPED_BYTES) -> None:
    """Let this process, and processes that it starts, hold little free memory.

    Values that the user has set stay. Call it before Arrow is imported.

    Args:
        mapped: Bytes from which the C library maps a block by itself.
    """
    environ.setdefault(_PURGE_VARIABLE, str(PURGE_DELAY))
    if _MAPPED_VARIABLE in environ:
        return
    # Once that bound is fixed, the C library would return each smaller block at the end of its heap
    # as it is freed, and ask for it anew: a third of what reading and staging lines takes.
    environ[_MAPPED_VARIABLE] = environ[_KEPT_VARIABLE] = str(mapped)
    # The variables are read before Python starts. Only the GNU C library has the function.
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, mapped)
        library.mallopt(_M_TRIM_THRESHOLD, mapped)


def keep_blocks(environ: MutableMapping[str, str]) -> None:
    """Let a worker of Spark keep the memory of a block of lines for the next one.

    To map each anew takes as long as to read it. In other processes each thread would keep one.
    Values that the user has set stay.
    """
    if environ.get(_MAPPED_VARIABLE) == str(MAPPED_BYTES):
        del environ[_MAPPED_VARIABLE]
        return_memory_early(environ, KEPT_BYTES)


_QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
"""Files of a container's quota and its period: of cgroups version 2, and of version 1."""


def usable_cores(
    groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> int:
    """Return how many cores this process may use, as Java and Spark's `local[*]` count them.

    Args:
        groups: Where control groups are. In a container its own is the root of all.
        own: Names the group of this process below it, as for a service of systemd.
    """
    cores = os.cpu_count() or 1
    with suppress(AttributeError):  # macOS
        cores = len(os.sched_getaffinity(0))
    here = groups
    with suppress(OSError, StopIteration):
        here /= next(line[4:] for line in own.read_text().splitlines() if line.startswith("0::/"))
    for folder, names in product((here, *here.parents), _QUOTAS):
        with suppress(OSError, ValueError):  # `max`
            quota, period = (int(text) for n in names for text in (folder / n).read_text().split())
            cores = min(cores, math.ceil(quota / period)) if quota > 0 else cores
    return cores


def sees_current_folder() -> bool:
    """Return whether this program imports from the current folder."""
    names = {""}
    with suppress(OSError):  # The folder has been deleted.
        names.add(str(Path.cwd()))
    return not names.isdisjoint(sys.path)


def see_current_folder() -> None:
    """Import from the current folder, too, before all others."""
    if not sees_current_folder():
        sys.path.insert(0, str(Path.cwd()))


def run_to_exit(main: Callable[[], int]) -> int:
    """Run a program; end the process with its exit code once all functions at exit have run.

    Python's own finalization is left out: it waits for threads of pools, whose work may take
    minutes after a signal, and if a thread of Arrow still lets go of Python's objects, it aborts or
    hangs.
    """
    open_standard_streams()
    codes: list[int] = []
    # Registered before what the run registers, so it runs last.
    atexit.register(_end_process, codes)
    codes.append(main())
    atexit._run_exitfuncs()
    return codes[0]


def open_standard_streams() -> None:
    """Open those of the descriptors 0 to 2 that the caller has closed.

    Otherwise the next file that is opened becomes standard input, output or error. What is opened
    here refuses to be read (0) or written (1), so that its use is an error; logs get lost.
    """
    for fd, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, flags)  # The lowest free descriptor: this one.
            os.set_inheritable(fd, True)
    for name, fd in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(fd, "w", closefd=False))


def _end_process(codes: list[int]) -> None:
    """End the process; do nothing if the program has not returned."""
    for code in codes:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
