"""Changes of a table: as plain data, in words, inside nested types, and with legal names. Pure.

The mapping of a table holds the stream's names of its columns. It is stored in the table. Its keys
are: the name of a column; for a column with values of a type that another column could not hold
(`type_conflicts: suffix`) the name, `VARIANT` and the type; for a field inside a column the path,
joined by `NESTED`, that starts with one of these; and `OURS` if target-spark has created the
table: columns without an entry then have the stream's names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import types as T  # noqa: N812

from shared.formats.json_schema import shown_type
from shared.singer.run_report import CREATED, RENAMED

_RECORD_METADATA = re.compile(r"_sdc_[a-z0-9_]{1,50}")
_EDGES = re.compile(r"^\W+|\W+$")
_OTHERS = re.compile(r"\W+")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_DIGEST = 8


@dataclass(frozen=True)
class NameRules:
    """The rules of a format and the settings for names.

    Attributes:
        style: `keep`, `clean` (letters, digits and `_`), `lower`, `upper` or `snake` (clean too).
        max_bytes: Longest name in bytes of UTF-8, at least 24; None means unlimited.
        forbidden: Characters that the format cannot hold.
        reserved: Names that it cannot hold, in lower case.
        ignore_case: The format treats names that differ only in case as equal.
        highest: The highest code point of a character.
        last: Characters that a name must not end with.
    """

    style: str = "keep"
    max_bytes: int | None = None
    forbidden: str = ""
    reserved: frozenset[str] = frozenset()
    ignore_case: bool = False
    highest: int = 0x10FFFF
    last: str = ""

    def fold(self, name: str) -> str:
        """Return a key that is equal for names that the format treats as equal."""
        return name.upper().casefold() if self.ignore_case else name


def assign_names(
    wishes: Mapping[str, str], rules: NameRules, renamed: Mapping[str, str]
) -> Mapping[str, str]:
    """Return a legal and unique name for every key.

    Args:
        wishes: Keys (names of a stream's columns), in any order → desired names.
        renamed: Names assigned earlier; they are always kept, and never assigned to another key.

    Returns:
        Key → legal name. If several become equal, the one that was legal keeps it, and the others
        end in a digest of the key: the result does not depend on the order.
    """
    supplied = {key: renamed[key] for key in wishes if key in renamed}
    legal = {key: legal_name(wish, rules) for key, wish in wishes.items() if key not in supplied}
    taken = {rules.fold(name) for name in renamed.values()}
    wanted: dict[str, list[str]] = {}
    for key, name in legal.items():
        wanted.setdefault(rules.fold(name), []).append(key)
    for fold, keys in wanted.items():
        own = keys if len(keys) == 1 else sorted((k for k in keys if legal[k] == k), key=_rank)
        if own and fold not in taken:
            supplied[own[0]] = legal[own[0]]
    taken |= {rules.fold(name) for name in supplied.values()}
    for key in sorted(legal.keys() - supplied.keys()):
        supplied[key] = _distinct(key, legal[key], rules, taken)
        taken.add(rules.fold(supplied[key]))
    return {key: supplied[key] for key in wishes}


def matched_names(
    names: Sequence[str],
    existing: Sequence[str],
    rules: NameRules,
    renamed: Mapping[str, str],
    *,
    ours: bool = False,
) -> Mapping[str, str]:
    """Return names like `assign_names`, matched with the existing columns of a table.

    Unassigned columns are matched with equal names first, then with names that the format treats
    as equal, then with names that become equal.

    Args:
        names: Names of a stream's columns, in any order.
        ours: Columns of the table without an entry in `renamed` belong to the equal names.
    """
    wishes = {name: name for name in names}
    claimed = set(renamed.values())
    free = [name for name in existing if name not in claimed]
    if ours or not free:
        return assign_names(wishes, rules, {**{name: name for name in free}, **renamed})
    results = dict(renamed)
    results |= {name: name for name in names if name in free and name not in results}
    free = [name for name in free if name not in results.values()]
    for name in sorted(set(names) - set(results), key=_rank):
        match = _folded(name, free, rules)
        if match is not None:
            results[name] = match
            free.remove(match)
    supplied = assign_names(wishes, rules, results)
    new = {name: _folded(supplied[name], free, rules) for name in supplied if name not in results}
    return {name: new.get(name) or legal for name, legal in supplied.items()}


def legal_name(name: str, rules: NameRules) -> str:
    """Return a legal name of a column, table or schema. Different names may become equal.

    Legal names and columns of the record metadata are unchanged.
    """
    if _RECORD_METADATA.fullmatch(name):
        return name
    forbidden, highest = set(rules.forbidden), chr(rules.highest)
    styled = _STYLES[rules.style](name)
    legal = "".join("_" if char in forbidden or char > highest else char for char in styled) or "_"
    if rules.style != "keep" and legal[0].isdigit():
        legal = f"_{legal}"
    while legal.lower() in rules.reserved or legal[-1] in rules.last:
        legal += "_"
    if rules.max_bytes is None or len(_bytes(legal)) <= rules.max_bytes:
        return legal
    return _ended(legal, f"_{_digest(legal, rules)[:_DIGEST]}", rules)


def _folded(name: str, free: Sequence[str], rules: NameRules) -> str | None:
    """Return the equal name, or else one that the format treats as equal."""
    same = (other for other in free if rules.fold(other) == rules.fold(name))
    return name if name in free else next(same, None)


def _rank(name: str) -> tuple[bool, str]:
    return name != name.lower(), name


def _clean(name: str) -> str:
    return _OTHERS.sub("_", _EDGES.sub("", name))


_STYLES: Mapping[str, Callable[[str], str]] = {
    "keep": lambda name: name,
    "clean": _clean,
    "lower": lambda name: _clean(name.lower()),
    "upper": lambda name: _clean(name.upper()),
    "snake": lambda name: _clean(_HUMPS.sub("_", name).lower()),
}


def _distinct(key: str, legal: str, rules: NameRules, taken: set[str]) -> str:
    digest = _digest(key, rules)
    lengths = range(_DIGEST, len(digest) + 1, _DIGEST)
    tries = (_ended(legal, f"_{digest[:length]}", rules) for length in lengths)
    return next(name for name in tries if rules.fold(name) not in taken)


def _ended(legal: str, ending: str, rules: NameRules) -> str:
    """Return the name with an ending, truncated before it if needed."""
    if rules.max_bytes is None:
        return legal + ending
    room = max(rules.max_bytes - len(ending), 0)
    return _bytes(legal)[:room].decode("utf-8", "ignore") + ending


def _digest(text: str, rules: NameRules) -> str:
    digest = hashlib.sha256(_bytes(text)).hexdigest()
    return digest.upper() if rules.style == "upper" else digest


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


Path = tuple[str, ...]
"""Path of a column or field; elements of arrays are `element`, parts of maps `key` and `value`."""
PartitionStep = tuple[str | None, str | None]
"""A partition field that goes and one that comes, in SQL; None for none."""
NESTED = "\x1f"
OURS = NESTED
VARIANT = "\x1e"


def of_columns(mapping: Mapping[str, str]) -> Mapping[str, str]:
    """Return the entries of a mapping for columns."""
    return {source: name for source, name in mapping.items() if NESTED not in source}


@dataclass(frozen=True)
class Column:
    """A column to create.

    Attributes:
        name: Name in the table.
        source: Name in the stream.
        nullable: False for NOT NULL.
        comment: The description in the stream's schema.
    """

    name: str
    source: str
    dtype: T.DataType
    nullable: bool = True
    comment: str | None = None


def comment_of(schema: Any, names: Sequence[str] = ("description", "title")) -> str | None:
    """Return the first text that some entries of a JSON Schema have; None if there is none."""
    texts = map(schema.get, names) if isinstance(schema, Mapping) else ()
    return next((text for text in texts if isinstance(text, str) and text), None)


@dataclass(frozen=True)
class Projected:
    """The source of the values of one column of the table.

    Attributes:
        target: Name of the column.
        source: The stream's column; None for null.
        dtype: Type of the column after the change.
        how: `as is`, `cast`, `text` (see `spark_columns.value_text`), `exact` (null for values that
            the type does not hold exactly) or `null`.
        names: Path in the table and the stream's name, of fields whose names differ.
    """

    target: str
    source: str | None
    dtype: T.DataType
    how: str = "as is"
    names: tuple[tuple[Path, str], ...] = ()


@dataclass(frozen=True)
class TableChange:
    """The change that a table needs to hold the rows of a stream, and the projection of these rows.

    Attributes:
        create: Columns of the table, if it does not exist.
        add: Columns to add at the end.
        widen: Path, type and wider type of columns and fields to widen in place.
        add_nested: Path and type of fields to add.
        nullable: Columns whose NOT NULL is dropped.
        rewrite: Columns that get another type by a rewrite of the table.
        partitions: Partition fields to add, to drop, or to replace, for rows that come.
        projection: One entry for each column of the changed table, in order. Columns with a
            default (metadata `default`) that the stream lacks are omitted.
        mapping: The mapping for later runs; see the module.
    """

    create: tuple[Column, ...] | None = None
    add: tuple[Column, ...] = ()
    widen: tuple[tuple[Path, T.DataType, T.DataType], ...] = ()
    add_nested: tuple[tuple[Path, T.DataType], ...] = ()
    nullable: tuple[str, ...] = ()
    rewrite: tuple[tuple[str, T.DataType], ...] = ()
    partitions: tuple[PartitionStep, ...] = ()
    projection: tuple[Projected, ...] = ()
    mapping: Mapping[str, str] = field(default_factory=dict)

    @property
    def alters(self) -> bool:
        """Return whether an existing table must change (apart from its mapping)."""
        columns = self.add, self.widen, self.add_nested, self.nullable, self.rewrite
        return any((*columns, self.partitions))

    def supplied(self, names: Collection[str]) -> frozenset[str]:
        """Return the table's columns that rows set, with those for other types of a column."""
        named = of_columns(self.mapping).items()
        variants = {name for source, name in named if source.partition(VARIANT)[0] in names}
        return frozenset(variants.union(i.target for i in self.projection if i.source is not None))

    @property
    def targets(self) -> dict[str, str]:
        """Return stream's name → table's name of every column that rows set."""
        return {item.source: item.target for item in self.projection if item.source is not None}

    @property
    def renamed(self) -> Mapping[str, str]:
        """Return the part of the mapping to store: entries that differ from the default."""
        changed = {source: name for source, name in self.mapping.items() if source != name}
        return self.mapping if changed and OURS not in self.mapping else changed


def change_lines(change: TableChange) -> tuple[str, ...]:
    """Return what a change does to a table, one phrase for each step; none for no change."""
    new = {column.name for column in (*(change.create or ()), *change.add)}
    renamed = (
        f"{RENAMED}'{source}' as '{name}'"
        for source, name in of_columns(change.mapping).items()
        if name in new and source != name and VARIANT not in source
    )
    if change.create is not None:
        columns = ", ".join(f"{column.name} {shown_type(column.dtype)}" for column in change.create)
        return (f"{CREATED}{columns}", *renamed)
    return (
        *(f"add the column '{one.name}' ({shown_type(one.dtype)})" for one in change.add),
        *renamed,
        *(f"add the field '{'.'.join(at)}' ({shown_type(new)})" for at, new in change.add_nested),
        *(
            f"widen '{'.'.join(at)}' from {shown_type(old)} to {shown_type(new)}"
            for at, old, new in change.widen
        ),
        *(f"rewrite the table for '{at}' as {shown_type(new)}" for at, new in change.rewrite),
        *(f"allow nulls in '{name}'" for name in change.nullable),
        *(_repartitioned(gone, come) for gone, come in change.partitions),
    )


def _repartitioned(old: str | None, new: str | None) -> str:
    gone, come = ((text or "").replace("`", "") for text in (old, new))
    if not come:
        return f"no longer partition new rows by {gone}"
    return f"partition new rows by {come}" + (f" instead of {gone}" if gone else "")


def _never(_old: T.DataType, _new: T.DataType) -> bool:
    return False


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of a format for a table that has rows.

    Attributes:
        widen: Whether a column or field of the first type can become one of the second in place.
            Called only if the second holds every value of the first.
        nested: Fields can be added to structs inside columns.
        takes: Further pairs (type in the table, type of the stream) that only need a cast.
        refuses_nulls: The table refuses single rows with a null in a NOT NULL column: keys, which
            are never null, stay NOT NULL.
        is_theirs: Others have created the table: its columns keep their types and NOT NULL.
        hint: The setting that allows more, at the begin of a hint; empty for none.
    """

    widen: Callable[[T.DataType, T.DataType], bool] = _never
    nested: bool = True
    takes: Callable[[T.DataType, T.DataType], bool] = _never
    refuses_nulls: bool = False
    is_theirs: bool = False
    hint: str = ""


ANYTHING = Capabilities(widen=lambda _old, _new: True)
"""The capabilities for a table without rows."""


@dataclass(frozen=True)
class LegalType:
    """A type of a stream with legal names of fields.

    Attributes:
        names: Path in the table → the stream's name, of fields whose names differ.
        renamed: Entries for the mapping.
    """

    dtype: T.DataType
    names: Mapping[Path, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


def legal_type(
    dtype: T.DataType,
    old: T.DataType | None,
    source: Path,
    target: Path,
    rules: NameRules,
    renamed: Mapping[str, str],
) -> LegalType:
    """Return a column's type with names of fields that the table has or can have.

    They are legal like column names with the style `keep`.

    Args:
        old: The table's type, if the column exists.
        source: Its path in the mapping.
        target: Its path in the table.
        renamed: The mapping stored in the table.
    """

    def part(inner: T.DataType, before: T.DataType | None, name: str) -> LegalType:
        return legal_type(inner, before, (*source, name), (*target, name), rules, renamed)

    if isinstance(dtype, T.StructType):
        have = old if isinstance(old, T.StructType) else T.StructType()
        return _legal_struct(dtype, have, source, target, rules, renamed)
    if isinstance(dtype, T.ArrayType):
        had = old.elementType if isinstance(old, T.ArrayType) else None
        one = part(dtype.elementType, had, "element")
        return replace(one, dtype=T.ArrayType(one.dtype, dtype.containsNull))
    if isinstance(dtype, T.MapType):
        keys, values = (old.keyType, old.valueType) if isinstance(old, T.MapType) else (None, None)
        key, value = part(dtype.keyType, keys, "key"), part(dtype.valueType, values, "value")
        return LegalType(
            T.MapType(key.dtype, value.dtype, dtype.valueContainsNull),
            {**key.names, **value.names},
            {**key.renamed, **value.renamed},
        )
    return LegalType(dtype)


def _legal_struct(
    dtype: T.StructType,
    old: T.StructType,
    source: Path,
    target: Path,
    rules: NameRules,
    renamed: Mapping[str, str],
) -> LegalType:
    prefix = NESTED.join((*source, ""))
    existing = {
        key[len(prefix) :]: name
        for key, name in renamed.items()
        if key.startswith(prefix) and NESTED not in key[len(prefix) :]
    }
    have = {part.name: part.dataType for part in old.fields}
    keeping, ours = replace(rules, style="keep"), OURS in renamed
    legal = matched_names(dtype.names, list(have), keeping, existing, ours=ours)
    names: dict[Path, str] = {}
    added: dict[str, str] = {}
    fields = []
    for part in dtype.fields:
        name = legal[part.name]
        if name != part.name:
            names[(*target, name)] = part.name
            added[prefix + part.name] = name
        paths = (*source, part.name), (*target, name)
        created = legal_type(part.dataType, have.get(name), *paths, rules, renamed)
        names |= created.names
        added |= created.renamed
        fields.append(T.StructField(name, created.dtype, part.nullable))
    return LegalType(T.StructType(fields), names, added)


def not_older(pairs: Sequence[tuple[str, str]], equal: str) -> str:
    """Return the condition that a given row is not older than the stored one; null is the oldest.

    Args:
        pairs: For each column the given and the stored value; the first that differ decide.
        equal: Operator that is true for two nulls.
    """
    (new, old), *rest = pairs
    if not rest:
        return f"({new} >= {old} OR {old} IS NULL)"
    newer = f"{new} > {old} OR ({old} IS NULL AND {new} IS NOT NULL)"
    return f"({newer} OR ({new} {equal} {old} AND {not_older(rest, equal)}))"
