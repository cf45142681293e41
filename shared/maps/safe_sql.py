"""Values of SQL expressions, with an error for records on which Spark would raise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from shared.formats.record_text import quoted
from shared.formats.spark_types import T

LONGEST_SHOWN = 200
"""Characters of an expression that a reason shows."""


@dataclass(frozen=True)
class SafeSql:
    """An SQL expression that is evaluated only for rows on which it does not fail.

    Functions such as `try_to_binary` return null if anything below them fails. So one of them
    wraps a hash of the expression's value, and the value itself is evaluated only if that hash
    is not null.

    Attributes:
        text: The expression.
        data_type: Its type.
        reads: The types of the columns that it reads.
    """

    text: str
    data_type: T.DataType
    reads: Mapping[str, T.DataType]

    def value(self) -> Column:
        """Make the column of values; null for rows with an error."""
        return F.when(self._succeeds(), F.expr(self.text))

    def error(self) -> Column:
        """Make the column of errors; null for rows without one."""
        shown = " ".join(self.text.split())
        shown = shown if len(shown) <= LONGEST_SHOWN else shown[:LONGEST_SHOWN] + "…"
        reason = f"SqlError: Spark cannot compute it from this record: {shown}"
        return F.when(~self._succeeds(), F.lit(reason))

    def _succeeds(self) -> Column:
        value = F.expr(self.text)
        hashed = F.hash(value).cast("string")
        forced = hashed if _can_be_hashed(self.data_type) else F.to_json(F.struct(value))
        # Under a condition: what two expressions share is else computed ahead of both, unguarded.
        return F.try_to_binary(F.when(self._always(), forced), F.lit("utf-8")).isNotNull()

    def _always(self) -> Column:
        """Return a condition that is always true, but that Spark cannot fold."""
        for name, kind in self.reads.items():
            if _can_be_hashed(kind):
                return F.bit_count(F.hash(F.col(quoted(name)))) >= 0
        return F.spark_partition_id() >= 0


def _can_be_hashed(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(_can_be_hashed(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _can_be_hashed(kind.elementType)
    return not isinstance(kind, (T.MapType, T.VariantType))
