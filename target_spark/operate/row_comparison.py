"""The rows of a run beside those of a table: hashes of ranges first, then single keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType

from shared.settings.texts import quoted
from target_spark.core.differences import (
    CHANGED,
    DOUBLED,
    MISSING,
    VANISHED,
    TableDifference,
)
from target_spark.tables.row_layout import NESTED, value_text

KIND = "__kind"
_RANGE, _HASH, _ROWS = "__range", "__hash", "__rows"


@dataclass(frozen=True)
class RowComparison:
    """Both sides, with the columns that are compared.

    Attributes:
        source: The rows of the run, one for each key, with the columns that the stream sets.
        table: The rows of the table, without those that are marked as deleted.
        columns: All compared columns.
        deleted: Column that marks rows as deleted, if the table has one.
        hard_delete: Delete rows instead.
        kinds: The kinds of differences that count.
        part: Condition for the rows of the table that are compared; None for all. A row with a key
            of the source is compared in any case.
    """

    source: DataFrame
    table: DataFrame
    keys: Sequence[str]
    columns: Sequence[str]
    ranges: int
    kinds: Sequence[str]
    deleted: str | None = None
    hard_delete: bool = False
    part: str | None = None

    @property
    def can_delete(self) -> bool:
        """Return whether rows of the table can be deleted, or marked as deleted."""
        return self.hard_delete or self.deleted is not None

    def difference(
        self, stream: str, table: str, missing_columns: tuple[str, ...] = ()
    ) -> TableDifference:
        """Compare both sides: all rows by sums of hashes, those of differing ranges by key.

        See `TableDifference.of` for the arguments.
        """
        source, target = self._summed(self.source, "s"), self._summed(self._cast(self._inside), "t")
        rows = [row.asDict() for row in source.join(target, _RANGE, "full_outer").collect()]
        sums = {row[_RANGE]: (row["ns"] or 0, row["nt"] or 0) for row in rows}
        differing = sorted(row[_RANGE] for row in rows if row["hs"] != row["ht"])
        result = self._counted(differing) if differing else {}
        return TableDifference.of(stream, table, sums, result, missing_columns)

    def _counted(self, ranges: Sequence[int]) -> dict[int, tuple[dict[str, int], dict[str, str]]]:
        """Return for each range the number of keys of each kind, and one of them."""
        key = F.to_json(F.struct(*map(quoted, self.keys)))
        wanted = F.count(F.lit(1)).alias("n"), F.min(key).alias("example")
        results: dict[int, tuple[dict[str, int], dict[str, str]]] = {}
        for row in self.differences(ranges).groupBy(_RANGE, KIND).agg(*wanted).collect():
            counts, examples = results.setdefault(row[_RANGE], ({}, {}))
            counts[row[KIND]], examples[row[KIND]] = row["n"], row["example"]
        return results

    def differences(self, ranges: Sequence[int]) -> DataFrame:
        """Return the keys that differ in ranges: the key columns, with range and `KIND`."""
        chosen = F.col(_RANGE).isin(list(ranges))
        source = self._hashed(self.source).where(chosen).alias("s")
        grouped = (
            self._hashed(self._cast(self._near))
            .where(chosen)
            .groupBy(_RANGE, *map(quoted, self.keys))
        )
        one_row = F.count(F.lit(1)).alias(_ROWS), F.min(_HASH).alias(_HASH)
        joined = source.join(grouped.agg(*one_row).alias("t"), self.same_keys(), "full_outer")
        kind = (
            F.when(F.col(f"t.{_HASH}").isNull(), MISSING)
            .when(F.col(f"s.{_HASH}").isNull(), VANISHED)
            .when(F.col(_ROWS) > 1, DOUBLED)
            .when(F.col(f"t.{_HASH}") != F.col(f"s.{_HASH}"), CHANGED)
        )
        both = (
            F.coalesce(f"s.{quoted(name)}", f"t.{quoted(name)}").alias(name)
            for name in (_RANGE, *self.keys)
        )
        return joined.select(*both, kind.alias(KIND)).where(F.col(KIND).isin(list(self.kinds)))

    @property
    def _inside(self) -> DataFrame:
        return self.table if self.part is None else self.table.where(self.part)

    @property
    def _near(self) -> DataFrame:
        """Return the rows of the range, and those outside of it that have a key of the source."""
        if self.part is None:
            return self.table
        outside = self.table.where(f"NOT coalesce({self.part}, false)").alias("t")
        existing = outside.join(self.source.alias("s"), self.same_keys(), "left_semi")
        return self._inside.unionByName(existing)

    def _cast(self, frame: DataFrame) -> DataFrame:
        """Return rows of the table with the types of the source, which may be wider."""
        types = {field.name: field.dataType for field in self.source.schema}
        return frame.select(*(F.col(quoted(n)).cast(types[n]).alias(n) for n in self.columns))

    def _hashed(self, frame: DataFrame) -> DataFrame:
        types = {field.name: field.dataType for field in frame.schema}

        def hashed(names: Sequence[str]) -> Column:
            # A hash skips nulls: without `isnull`, a value could move to another column.
            values = (_hashable(F.col(quoted(name)), types[name]) for name in names)
            return F.xxhash64(*(part for value in values for part in (value, F.isnull(value))))

        number = F.pmod(hashed(self.keys), F.lit(self.ranges)).cast("int").alias(_RANGE)
        return frame.select(*map(quoted, self.keys), number, hashed(self.columns).alias(_HASH))

    def _summed(self, frame: DataFrame, side: str) -> DataFrame:
        # A sum of decimals does not overflow, nor depend on the order of the rows.
        total = F.sum(F.col(_HASH).cast("decimal(20,0)")).alias(f"h{side}")
        rows = F.count(F.lit(1)).alias(f"n{side}")
        return self._hashed(frame).groupBy(_RANGE).agg(rows, total)

    def same_keys(self) -> Column:
        """Return the condition for a row `s` of the source and a row `t` with the same key."""
        names = map(quoted, self.keys)
        return reduce(and_, (F.col(f"s.{n}").eqNullSafe(F.col(f"t.{n}")) for n in names))


def _hashable(value: Column, dtype: DataType) -> Column:
    """Return a value that can be hashed: nested ones as text, as nulls inside would be skipped."""
    return value_text(value, dtype) if isinstance(dtype, NESTED) else value
