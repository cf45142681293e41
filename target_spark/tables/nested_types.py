"""Evolution of nested types: legal names of fields, and types that grow. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import types as T  # noqa: N812

from shared.types.arrow_types import as_nullable
from shared.types.merge_types import common_scalar
from target_spark.tables.legal_names import NameRules, matched_names
from target_spark.tables.table_changes import NESTED, OURS, Path


def _never(_old: T.DataType, _new: T.DataType) -> bool:
    return False


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of a format for a table that has rows.

    Attributes:
        widen: Whether a column or field of the first type can become one of the second in place.
            Called only if the second holds every value of the first.
        drop_not_null: Columns can be made nullable.
        nested: Fields can be added to structs inside columns.
        takes: Further pairs (type in the table, type of the stream) that only need a cast.
        refuses_nulls: The table refuses single rows with a null in a NOT NULL column: keys, which
            are never null, stay NOT NULL.
        is_theirs: Others have created the table: its columns keep their types and NOT NULL.
        hint: The setting that allows more, at the begin of a hint; empty for none.
    """

    widen: Callable[[T.DataType, T.DataType], bool] = _never
    drop_not_null: bool = True
    nested: bool = True
    takes: Callable[[T.DataType, T.DataType], bool] = _never
    refuses_nulls: bool = False
    is_theirs: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Growth:
    """The growth of a column to hold values of another type too.

    Attributes:
        dtype: Its new type.
        widen: Path, type and wider type of each widened column.
        add: Path and type of the fields to add.
    """

    dtype: T.DataType
    widen: tuple[tuple[Path, T.DataType, T.DataType], ...] = ()
    add: tuple[tuple[Path, T.DataType], ...] = ()


def growth(old: T.DataType, new: T.DataType, can: Capabilities, path: Path) -> Growth | None:
    """Plan how a column grows to hold the values of another type without loss.

    Args:
        old: Its type.
        new: The type of the new values, with the table's names of fields.
        can: The capabilities of the format.
        path: Path of the column.

    Returns:
        The growth; None if it is not possible.
    """
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


def without_new_fields(new: T.DataType, old: T.DataType) -> T.DataType:
    """Return a type without the fields of its structs that the older type lacks."""
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        known = {field.name: field.dataType for field in old}
        return T.StructType(
            [
                T.StructField(f.name, without_new_fields(f.dataType, known[f.name]), f.nullable)
                for f in new
                if f.name in known
            ]
        )
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        inner = without_new_fields(new.elementType, old.elementType)
        return T.ArrayType(inner, new.containsNull)
    if isinstance(old, T.MapType) and isinstance(new, T.MapType):
        value = without_new_fields(new.valueType, old.valueType)
        return T.MapType(new.keyType, value, new.valueContainsNull)
    return new


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


@dataclass(frozen=True)
class LegalType:
    """A type of a stream with legal names of fields.

    Attributes:
        dtype: The type.
        names: Path in the table → the stream's name, of fields whose names differ.
        renamed: Entries for the mapping.
    """

    dtype: T.DataType
    names: Mapping[Path, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NestedNames:
    """Makes the names of fields legal, like column names with the style `keep`."""

    rules: NameRules
    known: Mapping[str, str]

    def legal(
        self, dtype: T.DataType, old: T.DataType | None, source: Path, target: Path
    ) -> LegalType:
        """Return a column's type with names that the table has or can have.

        Args:
            dtype: The stream's type.
            old: The table's type, if the column exists.
            source: Its path in the stream.
            target: Its path in the table.
        """
        if isinstance(dtype, T.StructType):
            return self._struct(
                dtype, old if isinstance(old, T.StructType) else None, source, target
            )
        if isinstance(dtype, T.ArrayType):
            inner = old.elementType if isinstance(old, T.ArrayType) else None
            one = self._part(dtype.elementType, inner, source, target, "element")
            return replace(one, dtype=T.ArrayType(one.dtype, dtype.containsNull))
        if isinstance(dtype, T.MapType):
            keys, values = (
                (old.keyType, old.valueType) if isinstance(old, T.MapType) else (None, None)
            )
            key = self._part(dtype.keyType, keys, source, target, "key")
            value = self._part(dtype.valueType, values, source, target, "value")
            return LegalType(
                T.MapType(key.dtype, value.dtype, dtype.valueContainsNull),
                {**key.names, **value.names},
                {**key.renamed, **value.renamed},
            )
        return LegalType(dtype)

    def _part(
        self, dtype: T.DataType, old: T.DataType | None, source: Path, target: Path, name: str
    ) -> LegalType:
        return self.legal(dtype, old, (*source, name), (*target, name))

    def _struct(
        self, dtype: T.StructType, old: T.StructType | None, source: Path, target: Path
    ) -> LegalType:
        prefix = NESTED.join((*source, ""))
        known = {
            key[len(prefix) :]: name
            for key, name in self.known.items()
            if key.startswith(prefix) and NESTED not in key[len(prefix) :]
        }
        have = {} if old is None else {part.name: part.dataType for part in old.fields}
        rules, ours = replace(self.rules, style="keep"), OURS in self.known
        legal = matched_names(dtype.names, list(have), rules, known, ours=ours)
        names: dict[Path, str] = {}
        renamed: dict[str, str] = {}
        fields = []
        for part in dtype.fields:
            name = legal[part.name]
            if name != part.name:
                names[(*target, name)] = part.name
                renamed[prefix + part.name] = name
            made = self.legal(part.dataType, have.get(name), (*source, part.name), (*target, name))
            names |= made.names
            renamed |= made.renamed
            fields.append(T.StructField(name, made.dtype, part.nullable))
        return LegalType(T.StructType(fields), names, renamed)
