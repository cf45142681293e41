"""Names of type families. Pure."""

from __future__ import annotations

from shared.releases.spark_types import T
from shared.types.merge_types import INTEGERS, TEXTS

_FAMILIES: tuple[tuple[str, tuple[type[T.DataType], ...]], ...] = (
    ("integer", tuple(INTEGERS)),
    ("double", (T.FloatType, T.DoubleType)),
    ("string", TEXTS),
    ("interval", (T.DayTimeIntervalType, T.YearMonthIntervalType, T.CalendarIntervalType)),
)


def family(dtype: T.DataType) -> str:
    """Return the name of a type's family: `integer`, `decimal`, `double`, `string`, `date`, ..."""
    found = (name for name, kinds in _FAMILIES if isinstance(dtype, kinds))
    return str(next(found, dtype.typeName().partition("(")[0].replace(" ", "_")))


def is_text(dtype: T.DataType) -> bool:
    """Return whether a type is text."""
    return isinstance(dtype, TEXTS)
