"""`T`: Spark's types in every supported release; those that an older one lacks have a stand-in.

A stand-in names a type in schemas, and in what Arrow reads and writes. Spark itself has no column
of it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812

__all__ = ["T"]


if not TYPE_CHECKING and not all(
    hasattr(T, name)
    for name in ("VariantType", "CalendarIntervalType", "GeographyType", "DatetimeType", "TimeType")
):

    class _StandIn(T.AtomicType):
        """A type that Spark's release lacks."""

        @classmethod
        def typeName(cls) -> str:  # noqa: N802
            return cls.__name__[1:-4].lower()

    class _VariantType(_StandIn):
        """Any JSON value; in Spark 4.0 and later."""

    class _CalendarIntervalType(_StandIn):
        """An interval of months, days and seconds; in Spark 4.1 and later."""

        @classmethod
        def typeName(cls) -> str:  # noqa: N802
            return "interval"

    class _GeometryType(_StandIn):
        """A shape in a plane; in Spark 4.1 and later."""

    class _GeographyType(_StandIn):
        """A shape on the earth; in Spark 4.1 and later."""

    class _DatetimeType(_StandIn):
        """The parent of dates, times and timestamps; in Spark 4.1 and later."""

    class _TimeType(_DatetimeType):
        """The time of a day, to a number of decimal places of seconds; in Spark 4.1 and later."""

        def __init__(self, precision: int = 6) -> None:
            self.precision = precision

        def simpleString(self) -> str:  # noqa: N802
            return f"time({self.precision})"

        def jsonValue(self) -> str:  # noqa: N802
            return self.simpleString()

    _stand_ins = {kind.__name__[1:]: kind for kind in (*_StandIn.__subclasses__(), _TimeType)}
    T = SimpleNamespace(**{**_stand_ins, **vars(T)})
