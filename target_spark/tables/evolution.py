"""Schema evolution: the change that lets a table hold the rows of a stream. Pure.

Partitions are columns or Iceberg's transforms of them. Rows cannot set columns that a table
computes itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from shared.errors import SettingsError, Where
from shared.formats.arrow_types import as_nullable
from shared.formats.json_schema import INTEGERS, TEXTS, without_new_fields
from shared.formats.spark_types import T
from shared.maps.record_metadata import VERSION_COLUMNS
from target_spark.core.load_plans import (
    DISCARD,
    EVOLVE,
    FREEZE,
    TableRequest,
    contract_error,
)
from target_spark.tables.table_changes import (
    OURS,
    VARIANT,
    Capabilities,
    Column,
    Growth,
    LegalType,
    NameRules,
    NestedNames,
    Projected,
    TableChange,
    assign_names,
    growth,
    matched_names,
    of_columns,
)

_FAMILIES: tuple[tuple[str, tuple[type[T.DataType], ...]], ...] = (
    ("integer", tuple(INTEGERS)),
    ("double", (T.FloatType, T.DoubleType)),
    ("string", TEXTS),
    ("interval", (T.DayTimeIntervalType, T.YearMonthIntervalType, T.CalendarIntervalType)),
)


def family(dtype: T.DataType) -> str:
    """Return the name of a type's family: `integer`, `decimal`, `double`, `string`, `date`, ..."""
    results = (name for name, kinds in _FAMILIES if isinstance(dtype, kinds))
    return str(next(results, dtype.typeName().partition("(")[0].replace(" ", "_")))


_UNITS = {
    unit: unit.rstrip("s") + "s"
    for unit in ("year", "month", "day", "hour", "years", "months", "days", "hours")
}
_TRANSFORM = re.compile(r"(?P<name>\w+)\s*\((?:\s*(?P<number>\d+)\s*,)?\s*(?P<column>.+?)\s*\)")


@dataclass(frozen=True)
class PartitionField:
    """One partition field.

    Attributes:
        column: Name in the stream.
        transform: `identity`, `years`, `months`, `days`, `hours`, `bucket` or `truncate`.
        number: Number of buckets, or the width; None for other transforms.
    """

    column: str
    transform: str = "identity"
    number: int | None = None


def partition_fields(request: TableRequest) -> tuple[PartitionField, ...]:
    """Return the partition fields that the settings ask for.

    Raises:
        SettingsError: The stream does not have the column, or the transform is unknown.
    """
    names = request.struct.names
    return tuple(_field(text, names, request.stream) for text in request.layout.partition_by)


def cluster_columns(request: TableRequest, verb: str) -> tuple[str, ...]:
    """Return the columns of `cluster_by`.

    Args:
        request: The request of the stream for its table.
        verb: What they do to the table, for messages: `cluster` or `sort`.

    Raises:
        SettingsError: The stream does not have one.
    """
    for name in request.layout.cluster_by:
        if name not in request.struct.names:
            text = f"the stream has no column '{name}' to {verb} its table by"
            raise _missing(text, request.stream, "cluster_by")
    return request.layout.cluster_by


def _field(text: str, names: Sequence[str], stream: str) -> PartitionField:
    if text in names:
        return PartitionField(text)
    match = _TRANSFORM.fullmatch(text.strip())
    field = PartitionField(text) if match is None else _transform(match)
    if field is None:
        raise SettingsError(
            f"'{text}' is not a column or a partition transform",
            where=Where(stream=stream, setting="partition_by"),
            hint="give a column, or years, months, days, hours(column), bucket(16, column) or "
            "truncate(4, column)",
        )
    if field.column not in names:
        text = f"the stream has no column '{field.column}' to partition its table by"
        raise _missing(text, stream, "partition_by")
    return field


def _missing(text: str, stream: str, setting: str) -> SettingsError:
    return SettingsError(
        text,
        where=Where(stream=stream, setting=setting),
        hint="select it in the tap, or name another column for this stream under `streams`",
    )


def _transform(result: re.Match[str]) -> PartitionField | None:
    name, number = result["name"].lower(), result["number"]
    column = result["column"].strip("`")
    if name in _UNITS and number is None:
        return PartitionField(column, _UNITS[name])
    if name in {"bucket", "truncate"} and number is not None and int(number) > 0:
        return PartitionField(column, name, int(number))
    return None


__all__ = ["ANYTHING", "Capabilities", "Column", "Projected", "TableChange", "plan_change"]

_LONGEST_TAG, _LONGEST_SHOWN = 24, 120
ANYTHING = Capabilities(widen=lambda _old, _new: True)
"""The capabilities for a table without rows."""


@dataclass(frozen=True)
class _Placed:
    """A column of the stream and its place."""

    item: Projected
    field: T.StructField
    growth: Growth | None
    mapping: Mapping[str, str]
    rewrite: bool = False


@dataclass(frozen=True)
class _Planner:
    """Plans the change of an existing table."""

    table: T.StructType
    request: TableRequest
    rules: NameRules
    conflicts: str
    can: Capabilities
    renamed: Mapping[str, str]

    @cached_property
    def columns(self) -> Mapping[str, T.StructField]:
        return {column.name: column for column in self.table.fields}

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Return the columns of the stream in the table."""
        names, existing = self.request.struct.names, of_columns(self.renamed)
        return matched_names(
            names, list(self.columns), self.rules, existing, ours=OURS in self.renamed
        )

    @cached_property
    def fixed(self) -> Mapping[str, str]:
        """Return the columns whose type must not change, with their roles."""
        partitions = {part.column: "partition column" for part in partition_fields(self.request)}
        order = dict.fromkeys(self.request.order_by, "order column")
        return {**partitions, **order, **dict.fromkeys(self.request.keys, "key")}

    def _place(self, column: T.StructField) -> _Placed | None:
        """Return the place of a column; None if the contract leaves it out."""
        name = self.names[column.name]
        legal, grown = self._fit(column, name)
        if name not in self.columns:
            return self._added(_placed(column, name, legal, None, {column.name: name}))
        old = self.columns[name].dataType
        is_other = grown is not None and (
            bool(grown.add) or any(family(before) != family(new) for _, before, new in grown.widen)
        )
        if grown is not None and not (column.name in self.fixed and is_other):
            if grown.add and self.request.contract.columns != EVOLVE:
                what = f"the table has no field '{'.'.join(grown.add[0][0])}'"
                raise self._contract_error("columns", what)
            if grown.widen and self.request.contract.types != EVOLVE:
                return self._unchanged(column, name, legal)
            return _placed(column, name, legal, grown, {column.name: name})
        if column.name in self.fixed:
            raise self._fixed_error(column, old)
        if self.request.contract.types != EVOLVE:
            return self._unchanged(column, name, legal)
        if self.conflicts == "suffix":
            return self._suffixed(column, name)
        if self.conflicts == "cast":
            return self._recast(column, name, legal)
        raise self._error(
            f"column '{column.name}' is {_shown(old)} in the table and "
            f"{_shown(column.dataType)} in the stream",
            f"{self.can.hint}set `type_conflicts` to `suffix` (a new column) or `cast` (text), or "
            "load the stream into another table",
        )

    def _added(self, place: _Placed) -> _Placed | None:
        """Return the place of a new column; None if the contract leaves it out."""
        name = place.field.name
        if self.request.contract.columns == EVOLVE:
            return place
        if self.request.contract.columns == DISCARD and name not in {*self.fixed, *VERSION_COLUMNS}:
            return None
        raise self._contract_error("columns", f"the table has no column '{place.item.target}'")

    def _unchanged(self, column: T.StructField, name: str, legal: LegalType) -> _Placed:
        """Return the place of values that a column holds exactly; others become null."""
        old = self.columns[name].dataType
        if self.request.contract.types == FREEZE or column.name in self.fixed:
            raise self._contract_error(
                "types",
                f"column '{column.name}' is {_shown(old)} in the table and "
                f"{_shown(column.dataType)} in the stream",
            )
        created = _placed(column, name, legal, Growth(old), {column.name: name})
        field = T.StructField(column.name, column.dataType, True)
        return replace(created, item=replace(created.item, how="exact"), field=field)

    def _contract_error(self, part: str, text: str) -> SettingsError:
        return contract_error(self.request.stream, part, text)

    def _fit(self, column: T.StructField, name: str) -> tuple[LegalType, Growth | None]:
        old = self.columns[name].dataType if name in self.columns else None
        nested = NestedNames(self.rules, self.renamed)
        legal = nested.legal(column.dataType, old, (column.name,), (name,))
        if old is not None and self.request.contract.columns == DISCARD:
            legal = replace(legal, dtype=without_new_fields(legal.dtype, old))
        grown = None if old is None else growth(old, legal.dtype, self.can, (name,))
        return legal, grown

    def _left_empty(self, column: T.StructField, name: str) -> _Placed:
        """Return the place of values that the contract leaves out: null in their column."""
        item = Projected(name, None, self.columns[name].dataType, "null")
        field = T.StructField(column.name, column.dataType, True)
        return _Placed(item, field, None, {column.name: name})

    def _suffixed(self, column: T.StructField, base: str) -> _Placed:
        """Return the column for values of this type, named by kind, or else by exact type."""
        for tag in dict.fromkeys((family(column.dataType), _tag(column.dataType))):
            key = column.name + VARIANT + tag
            taken = {**of_columns(self.renamed), **self.names}
            if OURS in self.renamed:
                # Other columns are of properties with their names, which the stream lacks now.
                taken |= {one: one for one in self.columns if one not in taken.values()}
            name = assign_names({key: f"{base}__{tag}"}, self.rules, taken)[key]
            result = self._existing(name) if key not in taken else name
            legal, grown = self._fit(column, result)
            if result not in self.columns or grown is not None:
                mapping = {column.name: base, key: result}
                placed = _placed(column, result, legal, grown, mapping)
                is_there = result in self.columns or self._added(placed) is not None
                return placed if is_there else self._left_empty(column, base)
        raise self._error(
            f"the table has no column for '{column.name}' as {_shown(column.dataType)}",
            f"rename or drop the column '{name}' of the table",
        )

    def _existing(self, name: str) -> str:
        fold = self.rules.fold
        return next((present for present in self.columns if fold(present) == fold(name)), name)

    def _recast(self, column: T.StructField, name: str, legal: LegalType) -> _Placed:
        """Cast values to text in a text column; otherwise rewrite it with a wider type."""
        old = self.columns[name].dataType
        wide = growth(old, legal.dtype, ANYTHING, (name,)) or Growth(T.StringType())
        mapping = {column.name: name}
        if isinstance(old, TEXTS) and not isinstance(legal.dtype, TEXTS):
            to_text = growth(old, T.StringType(), self.can, (name,))
            if to_text is not None:
                return _placed(column, name, legal, to_text, mapping)
        created = _placed(column, name, legal, Growth(wide.dtype), mapping)
        return replace(created, rewrite=True)

    def _fixed_error(self, column: T.StructField, old: T.DataType) -> SettingsError:
        return self._error(
            f"the {self.fixed[column.name]} '{column.name}' is {_shown(old)} in the table "
            f"and {_shown(column.dataType)} in the stream",
            f"{self.can.hint or 'its type cannot change: '}load the stream into another table, or "
            "cast it in the tap",
        )

    def _error(self, text: str, hint: str) -> SettingsError:
        return SettingsError(text, where=Where(stream=self.request.stream), hint=hint)

    def _missing_error(self, name: str) -> SettingsError:
        return SettingsError(
            f"the stream has no column '{name}', which the table requires: it is NOT NULL without "
            "a default, and target-spark has not created the table",
            where=Where(stream=self.request.stream),
            hint=f"{self.can.hint}give it a default in the table, add it to the stream by "
            "`stream_maps`, or load the stream into another table",
        )

    def change(self) -> TableChange:
        every = map(self._place, self.request.struct.fields)
        places = [place for place in every if place is not None]
        grown = [place.growth for place in places if place.growth and not place.rewrite]
        supplied = {place.item.target: place for place in places}
        new = [place for place in places if place.item.target not in self.columns]
        mapping = dict(self.renamed)
        for place in places:
            mapping |= place.mapping
        return TableChange(
            add=_created(new, self.request, keeps_null=True),
            widen=tuple(step for one in grown for step in one.widen),
            add_nested=tuple(step for one in grown for step in one.add),
            nullable=self._nullable(supplied),
            rewrite=tuple((p.item.target, p.item.dtype) for p in places if p.rewrite),
            projection=(*self._projected(supplied), *(place.item for place in new)),
            mapping=mapping,
        )

    def _projected(self, placed: Mapping[str, _Placed]) -> Sequence[Projected]:
        return [
            placed[name].item if name in placed else Projected(name, None, column.dataType, "null")
            for name, column in self.columns.items()
            if name in placed or not _has_default(column)
        ]

    def _nullable(self, placed: Mapping[str, _Placed]) -> tuple[str, ...]:
        strict = [column for column in self.columns.values() if not column.nullable]
        missing = [c.name for c in strict if c.name not in placed and not _has_default(c)]
        if self.can.is_theirs:
            if missing:
                raise self._missing_error(missing[0])
            return ()
        keys = self.request.keys if self.can.refuses_nulls else ()
        names = [
            column.name
            for column in strict
            if column.name in missing
            or (
                column.name in placed
                and placed[column.name].field.nullable
                and placed[column.name].field.name not in keys
            )
        ]
        if names and not self.can.drop_not_null:
            raise SettingsError(
                f"column '{names[0]}' of the table is NOT NULL, and the stream may lack a value",
                where=Where(stream=self.request.stream),
                hint="make it nullable in the table, or load the stream into another one",
            )
        return tuple(names)


def plan_change(
    table: T.StructType | None,
    request: TableRequest,
    rules: NameRules,
    conflicts: str,
    can: Capabilities,
    renamed: Mapping[str, str],
) -> TableChange:
    """Plan the change that lets a table hold the rows of a stream.

    Args:
        table: Its current columns, `nullable` false for NOT NULL; None if it does not exist.
        request: The stream's request; its struct has types that the format can store.
        rules: The names that the format can hold.
        conflicts: `fail`, `suffix` or `cast`.
        can: The capabilities of the format.
        renamed: The mapping stored in the table.

    Returns:
        The change; for the changed table it consists only of the same projection.

    Raises:
        SettingsError: Types conflict and `conflicts` says `fail`; a key, or a column the table
            is partitioned by, changes its type; the stream lacks a partition column, or all
            columns; a NOT NULL column would become null.
        SettingsError: The contract of the request forbids the change, or the stream lacks a column
            that a table of others requires.
    """
    if not request.struct.names:
        raise SettingsError(
            "the stream has no columns, and a table needs at least one",
            where=Where(stream=request.stream),
        )
    if table is not None:
        return _Planner(table, request, rules, conflicts, can, renamed).change()
    wishes = {name: name for name in request.struct.names}
    names, nested = assign_names(wishes, rules, of_columns(renamed)), NestedNames(rules, renamed)
    places, mapping = [], {**renamed, OURS: "1"}
    for column in request.struct:
        name = names[column.name]
        legal = nested.legal(column.dataType, None, (column.name,), (name,))
        places.append(_placed(column, name, legal, None, {column.name: name}))
        mapping |= places[-1].mapping
    return TableChange(
        create=_created(places, request),
        projection=tuple(place.item for place in places),
        mapping=mapping,
    )


def _created(
    places: Sequence[_Placed], request: TableRequest, *, keeps_null: bool = False
) -> tuple[Column, ...]:
    """Return the columns to create for some places; with `keeps_null`, all may be null."""
    nodes = request.schema.get("properties") or {}
    columns = []
    for item, source in ((place.item, place.field) for place in places):
        node = nodes.get(source.name)
        text = node.get("description") if isinstance(node, Mapping) else None
        comment = text if isinstance(text, str) and text else None
        nullable = keeps_null or source.nullable
        columns.append(Column(item.target, source.name, item.dtype, nullable, comment))
    return tuple(columns)


def _placed(
    column: T.StructField,
    name: str,
    legal: LegalType,
    grown: Growth | None,
    mapping: Mapping[str, str],
) -> _Placed:
    dtype = as_nullable(legal.dtype) if grown is None else grown.dtype
    same = as_nullable(dtype) == as_nullable(column.dataType)
    text = isinstance(dtype, TEXTS) and not isinstance(column.dataType, TEXTS)
    item = Projected(
        name,
        column.name,
        dtype,
        "text" if text else "as is" if same else "cast",
        tuple(legal.names.items()),
    )
    return _Placed(item, column, grown, {**mapping, **legal.renamed})


def _shown(dtype: T.DataType) -> str:
    text = dtype.simpleString()
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _tag(dtype: T.DataType) -> str:
    text = re.sub(r"\W+", "_", dtype.simpleString()).strip("_")
    if len(text) <= _LONGEST_TAG:
        return text
    return f"{family(dtype)}_{hashlib.sha256(dtype.simpleString().encode()).hexdigest()[:8]}"


def _has_default(column: T.StructField) -> bool:
    return bool((column.metadata or {}).get("default"))


def without_computed(
    request: TableRequest, names: Mapping[str, str], computed: Collection[str], shown: str
) -> TableRequest:
    """Return a request without columns that the table computes.

    Args:
        request: The request.
        names: The stream's columns in the table.
        computed: The columns that the table computes.
        shown: Name of the table.

    Raises:
        SettingsError: One of them is a key.
    """
    if not computed:
        return request
    fields = [field for field in request.struct if names[field.name] not in computed]
    keys = [key for key in request.keys if names[key] in computed]
    if keys:
        raise SettingsError(
            f"the key '{keys[0]}' is a generated column of the table {shown}, which rows cannot "
            "set",
            where=Where(stream=request.stream),
            hint="name other `key_properties` in 'streams', or load it into another table",
        )
    return replace(request, struct=T.StructType(fields))
