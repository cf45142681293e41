"""Maps and flattening as one Spark projection, and the rows that `__explode__` makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shared.formats.arrow_types import holds
from shared.formats.record_text import at_path
from shared.formats.spark_types import T
from shared.maps.expressions.syntax import ERROR, PARENT
from shared.settings.texts import quoted

if TYPE_CHECKING:
    from shared.maps.expressions.planned import Computed


PLACE = "__map_place"
"""Column of exploded rows: the place of the element, from 0; null in rows without one."""

_ELEMENT = "__map_element"


@dataclass(frozen=True, eq=False)
class Explode:
    """The rows of the elements of an array.

    Attributes:
        path: The names that lead to the array.
        element: The type of its elements.
        index: The property with the place of an element; None for none.
        parent: What expressions name of the record, under `PARENT`; empty for nothing.
        is_loose: Whether elements are of types that the schema does not tell.
    """

    path: tuple[str, ...]
    element: T.DataType
    index: str | None
    parent: T.StructType
    is_loose: bool = False

    @property
    def reads(self) -> frozenset[str]:
        """Return the source columns it needs."""
        return frozenset({self.path[0], *self.parent.names})

    @property
    def hidden(self) -> tuple[str, ...]:
        """Return the paths of the source by which patterns of names mean the array itself."""
        ends = range(1, len(self.path) + 1)
        whole = isinstance(self.element, T.StructType)
        return tuple(".".join(self.path[:end]) for end in ends if whole or end < len(self.path))

    def origin(self, name: str) -> str:
        """Return the path in the source of a path in the elements."""
        inside = isinstance(self.element, T.StructType)
        return ".".join((*(self.path if inside else self.path[:-1]), name))

    def struct(self) -> T.StructType:
        """Return the columns of the rows."""
        if isinstance(self.element, T.StructType):
            fields = list(self.element)
        else:
            fields = [T.StructField(self.path[-1], self.element, self.is_loose)]
        if self.index is not None:
            fields.append(T.StructField(self.index, T.LongType(), False))
        if self.parent.fields:
            fields.append(T.StructField(PARENT, self.parent, False))
        return T.StructType(fields)

    def rows(
        self, frame: DataFrame, carried: Mapping[str, str], bypass: str | None, *, outer: bool
    ) -> DataFrame:
        """Return one row for each element that is not null.

        Args:
            frame: A frame with the columns of `reads`.
            carried: Columns to append to each row of a record, with their new names.
            bypass: A column of `carried`: rows with a value in it become one row each.
            outer: Whether a record without elements also becomes a row, without `PLACE`.

        Returns:
            The columns of `struct()`, `PLACE` and those of `carried`.
        """
        before = [F.col(quoted(name)).alias(new) for name, new in carried.items()]
        if self.parent.fields:
            before.append(F.struct(*_packed(self.parent, (), self.path)).alias(PARENT))
        array = at_path(self.path)
        if bypass is not None:
            array = F.when(F.col(quoted(bypass)).isNull(), array)
        explode = F.posexplode_outer if outer or bypass is not None else F.posexplode
        frame = frame.select(*before, explode(array).alias(PLACE, _ELEMENT))
        element = F.col(_ELEMENT)
        is_there = element.isNotNull()
        if isinstance(self.element, T.VariantType):
            is_there &= ~F.is_variant_null(element)
        if bypass is not None:
            frame = frame.filter(is_there | F.col(carried[bypass]).isNotNull())
        elif not outer:
            frame = frame.filter(is_there)
        if isinstance(self.element, T.StructType):
            columns = [element.getField(name).alias(name) for name in self.element.names]
        else:
            columns = [element.alias(self.path[-1])]
        if self.index is not None:
            columns.append(F.col(PLACE).cast("bigint").alias(self.index))
        if self.parent.fields:
            columns.append(F.col(PARENT))
        place = F.when(is_there, F.col(PLACE)).alias(PLACE)
        return frame.select(*columns, place, *carried.values())


def _packed(struct: T.StructType, at: tuple[str, ...], array: tuple[str, ...]) -> Iterator[Any]:
    """Yield the fields of the record; objects around the array are made anew without it."""
    for item in struct:
        path = (*at, item.name)
        if array[: len(path)] == path and isinstance(item.dataType, T.StructType):
            yield F.struct(*_packed(item.dataType, path, array)).alias(item.name)
        else:
            yield at_path(path).alias(item.name)


_STAGED = "__map_filter"

_Values = dict["Computed", tuple[Column, Column | None]]
Keep = Sequence[str] | Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Condition:
    """The condition for rows to keep: a value, and what turns it into a boolean if it is none.

    Null counts as false.
    """

    computed: Computed
    truth: Callable[[Column], Column] | None = None


@dataclass(frozen=True, eq=False)
class Cell:
    """A column of the result.

    Attributes:
        name: Its name.
        data_type: Its type.
        nullable: Whether it may be null.
        path: The source column, and the fields that lead into it; empty if the value is computed.
        computed: The computed value that it is, or is a field of.
        finish: The last step for that value (select a field, make JSON text).
        is_json: Whether `finish` makes the JSON text of the source column, and nothing else.
    """

    name: str
    data_type: T.DataType
    nullable: bool = True
    path: tuple[str, ...] = ()
    computed: Computed | None = None
    finish: Callable[[Column], Column] | None = None
    is_json: bool = False

    @property
    def reads(self) -> frozenset[str]:
        """Return the source columns it needs."""
        return frozenset(self.path[:1]) if self.computed is None else self.computed.reads


@dataclass(frozen=True, eq=False)
class Transform:
    """The transform from the rows of one stream to one output.

    Attributes:
        cells: The columns of the result.
        computed: The values that may fail, in the order in which their errors are reported.
        filter: Condition for rows to keep; None for all.
        notes: Lines for the log.
        explode: Makes the rows that all of this is about from those of the stream; None if they
            are the same.
    """

    cells: tuple[Cell, ...]
    computed: tuple[Computed, ...] = ()
    filter: Condition | None = None
    notes: tuple[str, ...] = ()
    explode: Explode | None = None

    @property
    def leaves_out(self) -> bool:
        """Return whether a row of the stream may have no row in the result."""
        return self.filter is not None or self.explode is not None

    @property
    def reads(self) -> frozenset[str]:
        """Return the source columns it needs."""
        return self._reads if self.explode is None else self.explode.reads

    @property
    def _reads(self) -> frozenset[str]:
        filtered = frozenset[str]() if self.filter is None else self.filter.computed.reads
        reads = (item.reads for item in self.computed)
        return filtered.union(*reads, *(cell.reads for cell in self.cells))

    @property
    def only_copies(self) -> bool:
        """Return whether no row is left out and no value is computed."""
        plain = all(cell.computed is None and cell.finish is None for cell in self.cells)
        return plain and not self.computed and not self.leaves_out

    def struct(self) -> T.StructType:
        """Return the columns of the result, without `ERROR`."""
        return T.StructType(
            [T.StructField(cell.name, cell.data_type, cell.nullable) for cell in self.cells]
        )

    def apply(
        self,
        frame: DataFrame,
        keep: Keep = (),
        bypass: str | None = None,
        mark: str | None = None,
        clear: bool = True,
    ) -> DataFrame:
        """Map the rows of a frame.

        Args:
            frame: A frame with the columns of `reads`.
            keep: Source columns to append unchanged; a mapping renames them.
            bypass: Rows with a value in this column pass unmapped and unfiltered, without an
            error; their other columns are null. Name it in `keep` to keep it in the result.
            mark: Instead of `bypass`, for a transform that `leaves_out` rows: name of a column
            added to the result. Rows that are filtered out, and those without elements, are kept
            like bypassed rows; it is true in them and null in all others.
            clear: Whether columns that are computed are null in rows that pass unmapped. If not,
            they hold anything, and Spark computes what several columns have in common once: it
            does not look for that under a condition.

        Returns:
            The columns of `struct()`, `ERROR`, those of `keep`, and `mark`. Without
            `mark`, rows that are filtered out are dropped; rows with an error are kept.
        """
        kept = dict(keep) if isinstance(keep, Mapping) else dict(zip(keep, keep, strict=True))
        # 1. One row for each element. Columns to keep get other names: elements may have theirs.
        if self.explode is not None:
            names = dict.fromkeys([*kept.values(), *([bypass] if bypass else [])])
            carried = {name: f"__map_carried_{number}" for number, name in enumerate(names)}
            frame = self.explode.rows(frame, carried, bypass, outer=mark is not None)
            kept = {name: carried[source] for name, source in kept.items()}
            bypass = None if bypass is None else carried[bypass]
        # 2. The filter is computed before all else if Python does: rows that it drops cost no more.
        place = None if self.explode is None else F.col(PLACE)
        values: _Values = {}
        decides = [] if self.filter is None else [self.filter.computed]
        if self.filter is not None and self.filter.computed.in_python:
            others = {*kept.values(), *([bypass] if bypass else [])}
            others |= set() if place is None else {PLACE}
            frame = _staged(frame, self.filter.computed, self._reads | others)
            staged = F.col(_STAGED)
            values[self.filter.computed] = (staged.getField("value"), staged.getField("error"))
        for value in (*decides, *self.computed):
            if value not in values:
                values[value] = value.columns
        # 3. Drop rows that the filter refuses, or mark them and those without elements.
        skipped = None if bypass is None else F.col(quoted(bypass)).isNotNull()
        is_element = None if place is None else place.isNotNull()
        stays = None if self.filter is None else _passes(self.filter, *values[self.filter.computed])
        if mark is not None:
            conditions = [column for column in (stays, is_element) if column is not None]
            frame = frame.withColumn(mark, F.when(~reduce(and_, conditions), F.lit(True)))
            skipped = F.col(quoted(mark)).isNotNull()
            kept[mark] = mark
        elif stays is not None:
            frame = frame.filter(stays if skipped is None else skipped | stays)
        # 4. The columns of the result, and the first error of each row.
        cleared = skipped if clear else None
        cells = [_cell(cell, values, cleared).alias(cell.name) for cell in self.cells]
        error = _first_error(values, skipped)
        if place is not None:
            error = F.concat(F.lit("element "), place.cast("string"), F.lit(": "), error)
        error = error.alias(ERROR)
        return frame.select(*cells, error, *(F.col(quoted(k)).alias(n) for n, k in kept.items()))


def _staged(frame: DataFrame, computed: Computed, needed: Iterable[str]) -> DataFrame:
    """Return the frame with a column for a value computed in Python, and its error.

    Spark must neither push the filter below it nor merge it with the next projection, or Python
    would run twice; it does not move anything over a projection that is not deterministic.
    """
    value, error = computed.columns
    error = F.lit(None).cast("string") if error is None else error
    both = F.struct(value.alias("value"), error.alias("error"))
    staged = F.when(F.monotonically_increasing_id() >= 0, both).alias(_STAGED)
    return frame.select(*(F.col(quoted(name)) for name in sorted(needed)), staged)


def _first_error(values: _Values, skipped: Column | None) -> Column:
    """Return the first error of a row, that of the filter before all others."""
    errors = [
        F.concat(F.lit(f"{value.label}: "), error)
        for value, (_, error) in values.items()
        if error is not None
    ]
    if not errors:
        return F.lit(None).cast("string")
    first = errors[0] if len(errors) == 1 else F.coalesce(*errors)
    return first if skipped is None else F.when(~skipped, first)


def _passes(condition: Condition, value: Column, error: Column | None) -> Column:
    """Return whether a row is kept; also if the condition fails for it."""
    truth = value if condition.truth is None else condition.truth(value)
    stays = F.coalesce(truth, F.lit(False))
    return stays if error is None else error.isNotNull() | stays


def _cell(cell: Cell, values: _Values, skipped: Column | None) -> Column:
    column = at_path(cell.path) if cell.computed is None else values[cell.computed][0]
    column = column if cell.finish is None else cell.finish(column)
    # Copied columns keep their values in skipped rows.
    return column if skipped is None or cell.computed is None else F.when(~skipped, column)


LONGEST_SHOWN = 200
"""Characters of an expression that a reason shows."""
_UNHASHABLE = (T.MapType, T.VariantType)


@dataclass(frozen=True)
class SafeSql:
    """An SQL expression that is evaluated only for rows on which it does not fail.

    Functions such as `try_to_binary` return null if anything below them fails. So one of them
    wraps a hash of the expression's value, and the value itself is evaluated only if that hash
    is not null. `reads` are the types of the columns that it reads.
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
        forced = F.to_json(F.struct(value)) if holds(self.data_type, _UNHASHABLE) else hashed
        # Under a condition: what two expressions share is else computed ahead of both, unguarded.
        return F.try_to_binary(F.when(self._always(), forced), F.lit("utf-8")).isNotNull()

    def _always(self) -> Column:
        """Return a condition that is always true, but that Spark cannot fold."""
        for name, kind in self.reads.items():
            if not holds(kind, _UNHASHABLE):
                return F.bit_count(F.hash(F.col(quoted(name)))) >= 0
        return F.spark_partition_id() >= 0
