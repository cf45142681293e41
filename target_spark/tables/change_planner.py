"""The planner of changes of tables that exist: how columns grow, and what is in the way. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from shared.errors import SettingsError, Where
from shared.formats.arrow_types import as_nullable
from shared.formats.json_schema import INTEGERS, common_scalar, without_new_fields
from shared.formats.schema_nodes import TEXTS
from shared.formats.spark_types import T
from shared.maps.record_metadata import VERSION_COLUMNS
from target_spark.core.load_plans import (
    DISCARD,
    EVOLVE,
    FREEZE,
    TableRequest,
    contract_error,
)
from target_spark.tables.partitions import partition_fields
from target_spark.tables.table_changes import (
    ANYTHING,
    OURS,
    VARIANT,
    Capabilities,
    Column,
    LegalType,
    NameRules,
    Path,
    Projected,
    TableChange,
    assign_names,
    comment_of,
    legal_type,
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


_LONGEST_TAG, _LONGEST_SHOWN = 24, 120


@dataclass(frozen=True)
class _Placed:
    """A column of the stream and its place."""

    item: Projected
    field: T.StructField
    growth: Growth | None
    mapping: Mapping[str, str]
    rewrite: bool = False


@dataclass(frozen=True)
class ChangePlanner:
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
        if name in self.columns and not self.request.has_rows:
            return self._left_empty(column, name)
        legal, grown = self._fit(column, name, column.name)
        if name not in self.columns:
            return self._added(_placed(column, name, legal, None, {column.name: name}))
        # 1. The type grows, if the contract lets it; that of a fixed column only within its family:
        #    1 and '1' are not the same key.
        old = self.columns[name].dataType
        is_other = grown is not None and (
            bool(grown.add) or any(family(before) != family(new) for _, before, new in grown.widen)
        )
        if grown is not None and not (column.name in self.fixed and is_other):
            if grown.add and self.request.contract.columns != EVOLVE:
                what = f"the table has no field '{'.'.join(grown.add[0][0])}'"
                raise self._contract_error("columns", what)
            if not grown.widen or self.request.contract.types == EVOLVE:
                return _placed(column, name, legal, grown, {column.name: name})
        elif column.name in self.fixed:
            raise self._fixed_error(column, old)
        # 2. Another type, by `type_conflicts`.
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

    def _fit(self, column: T.StructField, name: str, key: str) -> tuple[LegalType, Growth | None]:
        """Return the type of values in a column, and how it grows; None if it cannot.

        `name` is that in the table, `key` that of the column in the mapping.
        """
        old = self.columns[name].dataType if name in self.columns else None
        legal = legal_type(column.dataType, old, (key,), (name,), self.rules, self.renamed)
        if old is not None and self.request.contract.columns == DISCARD:
            legal = replace(legal, dtype=without_new_fields(legal.dtype, old))
        grown = None if old is None else growth(old, legal.dtype, self.can, (name,))
        return legal, grown

    def _left_empty(self, column: T.StructField, name: str) -> _Placed:
        """Return the place of values that do not come, or are left out: null in their column."""
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
            legal, grown = self._fit(column, result, key)
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
        return self._error(
            f"the stream has no column '{name}', which the table requires: it is NOT NULL without "
            "a default, and target-spark has not created the table",
            f"{self.can.hint}give it a default in the table, add it to the stream by "
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
            add=tuple(map(self._column, new)),
            widen=tuple(step for one in grown for step in one.widen),
            add_nested=tuple(step for one in grown for step in one.add),
            nullable=self._nullable(supplied) if self.request.has_rows else (),
            rewrite=tuple((p.item.target, p.item.dtype) for p in places if p.rewrite),
            projection=(*self._projected(supplied), *(place.item for place in new)),
            mapping=mapping,
        )

    def _column(self, place: _Placed) -> Column:
        """Return a column to add: null in the rows that the table has."""
        item, source = place.item, place.field.name
        property_ = (self.request.schema.get("properties") or {}).get(source)
        comment = comment_of(property_, ("description",))
        return Column(item.target, source, item.dtype, True, comment)

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
        return tuple(
            column.name
            for column in strict
            if column.name in missing
            or (
                column.name in placed
                and placed[column.name].field.nullable
                and placed[column.name].field.name not in keys
            )
        )


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


@dataclass(frozen=True)
class Growth:
    """The growth of a column to hold values of another type too.

    Attributes:
        widen: Path, type and wider type of each widened column.
        add: Path and type of the fields to add.
    """

    dtype: T.DataType
    widen: tuple[tuple[Path, T.DataType, T.DataType], ...] = ()
    add: tuple[tuple[Path, T.DataType], ...] = ()


def growth(old: T.DataType, new: T.DataType, can: Capabilities, path: Path) -> Growth | None:
    """Plan how a column grows to hold another type's values without loss; None if it cannot."""
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        return _struct(old, new, can, path)
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        inner = growth(old.elementType, new.elementType, can, (*path, "element"))
        return inner and replace(inner, dtype=T.ArrayType(inner.dtype, old.containsNull))
    if isinstance(old, T.MapType) and isinstance(new, T.MapType):
        return _map(old, new, can, path)
    wider = common_scalar(old, new)
    if wider == old or can.takes(old, new):
        return Growth(old)
    if wider is None or not can.widen(old, wider):
        return None
    return Growth(wider, widen=((path, old, wider),))


def _struct(old: T.StructType, new: T.StructType, can: Capabilities, path: Path) -> Growth | None:
    later = {part.name: part for part in new.fields}
    fields: list[T.StructField] = []
    parts: list[Growth] = []
    for part in old.fields:
        come = later.pop(part.name, None)
        inner = (
            Growth(part.dataType)
            if come is None
            else growth(part.dataType, come.dataType, can, (*path, part.name))
        )
        if inner is None:
            return None
        parts.append(inner)
        fields.append(T.StructField(part.name, inner.dtype, part.nullable, part.metadata))
    if later and not can.nested:
        return None
    added = [T.StructField(part.name, as_nullable(part.dataType)) for part in later.values()]
    return Growth(
        T.StructType([*fields, *added]),
        tuple(step for inner in parts for step in inner.widen),
        (
            *(step for inner in parts for step in inner.add),
            *(((*path, part.name), part.dataType) for part in added),
        ),
    )


def _map(old: T.MapType, new: T.MapType, can: Capabilities, path: Path) -> Growth | None:
    """Plan the growth of a map's values; new keys would need a rewrite of all files."""
    key = growth(old.keyType, new.keyType, Capabilities(nested=False), (*path, "key"))
    value = growth(old.valueType, new.valueType, can, (*path, "value"))
    if key is None or value is None:
        return None
    return replace(value, dtype=T.MapType(old.keyType, value.dtype, old.valueContainsNull))
