"""Which modules are sent to Spark's workers by value, as workers need not have this project."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType


def modules() -> tuple[ModuleType, ...]:
    """Return the modules that the evaluation of expressions needs, apart from pyarrow.

    `orjson` is used if it is installed. `faker` must be installed for expressions with `fake`.
    """
    import simpleeval  # noqa: PLC0415

    from shared.maps.expressions import (  # noqa: PLC0415
        arrow_records,
        arrow_results,
        evaluator,
        fakes,
        growth_limits,
        personal,
        sandbox,
    )

    ours = (arrow_records, arrow_results, evaluator, fakes, growth_limits, personal, sandbox)
    return (*ours, simpleeval)


def send_by_value() -> None:
    """Send these modules to workers by value, so that workers need not have them."""
    from pyspark import cloudpickle  # noqa: PLC0415

    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    for module in modules():
        register(module)
