"""What Avro's types mean where Spark reads them raw: logical types and unions. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql import types as T  # noqa: N812

from tap_spark.sources.frame_helpers import MAX_DECIMAL

Node: TypeAlias = "str | list[Node] | dict[str, Any]"
"""A type as its schema writes it."""
UNION, RECORD, ARRAY, MAP = "union", "record", "array", "map"
_LOGICAL: Mapping[tuple[str, str], T.DataType] = {
    ("long", "timestamp-nanos"): T.TimestampType(),
    ("long", "local-timestamp-nanos"): T.TimestampNTZType(),
    ("int", "time-millis"): T.TimeType(),
    ("long", "time-micros"): T.TimeType(),
    ("fixed", "duration"): T.StringType(),
    ("fixed", "uuid"): T.StringType(),
    ("bytes", "big-decimal"): T.StringType(),
    ("bytes", "decimal"): T.StringType(),
    ("fixed", "decimal"): T.StringType(),
}
_SIZES = {"duration": 12, "uuid": 16}


class UnclearUnionError(Exception):
    """Spark makes one number of the members of a union; names the column."""


@dataclass(frozen=True)
class Form:
    """What the raw values of a column mean.

    Attributes:
        dtype: The type that keeps every value.
        kind: A logical type, or what it consists of; empty if Spark's values are right.
        scale: Of a decimal.
        parts: The forms of fields or members by name, or of elements.
    """

    dtype: T.DataType
    kind: str = ""
    scale: int = 0
    parts: tuple[tuple[str, Form], ...] = ()

    @property
    def is_fine(self) -> bool:
        """Return whether it has nanoseconds."""
        return self.kind.endswith("nanos") or any(part.is_fine for _, part in self.parts)

    def is_of(self, dtype: T.DataType) -> bool:
        """Return whether Spark itself reads the values in a type."""
        return not self.is_raw and self.dtype.simpleString() == dtype.simpleString()

    @property
    def is_raw(self) -> bool:
        """Return whether Spark's values are not yet those that Avro means."""
        is_own = self.kind not in ("", RECORD, ARRAY, MAP)
        return is_own or any(part.is_raw for _, part in self.parts)


def forms_of(schema: bytes, raw: T.StructType) -> dict[str, Form]:
    """Return the form of each column.

    Args:
        schema: The schema of a file.
        raw: The types that Spark reads.

    Raises:
        UnclearUnionError: Spark does not tell the members of a union apart.
    """
    node = json.loads(schema)
    form = _Forms(node).form(node, raw, "", "")
    return dict(form.parts) if form.kind == RECORD else {f.name: Form(f.dataType) for f in raw}


def readable(schema: bytes) -> str | None:
    """Return the schema with decimals that Spark refuses as bytes; None if it has none."""
    node = json.loads(schema)
    wide = [part for part in _parts(node) if isinstance(part, dict) and _is_wide(part)]
    for part in wide:
        del part["logicalType"]
    return json.dumps(node) if wide else None


def _is_wide(node: Mapping[str, Any]) -> bool:
    is_decimal = node.get("logicalType") == "decimal" and node.get("type") in ("bytes", "fixed")
    precision, scale = node.get("precision"), node.get("scale", 0)
    return (
        is_decimal
        and isinstance(precision, int)
        and isinstance(scale, int)
        and precision > MAX_DECIMAL
        and 0 <= scale <= precision
    )


def _parts(node: Node) -> Iterator[Node]:
    """Yield a type and all types inside it, not those that it names."""
    yield node
    if isinstance(node, list):
        inner = node
    elif isinstance(node, dict):
        inner = [node[name] for name in ("type", "items", "values") if name in node]
        inner += node.get("fields") or []
    else:
        return
    for part in inner:
        yield from _parts(part)


class _Forms:
    """Walks a schema beside Spark's types; types are named once and used by name."""

    def __init__(self, node: Node) -> None:
        self._named: dict[str, tuple[dict[str, Any], str]] = {}
        self._add_names(node, "")

    def _add_names(self, node: Node, space: str) -> None:
        if isinstance(node, list):
            for part in node:
                self._add_names(part, space)
        if not isinstance(node, dict):
            return
        if isinstance(node.get("name"), str) and node.get("type") in ("record", "fixed", "enum"):
            full = _full_name(node["name"], node.get("namespace", space))
            space = full.rpartition(".")[0]
            self._named[full] = (node, space)
        for field in node.get("fields") or ():
            self._add_names(field.get("type"), space)
        for name in ("type", "items", "values"):
            self._add_names(node.get(name, ""), space)

    def form(self, node: Node, raw: T.DataType, space: str, path: str) -> Form:
        """Return the form of a type."""
        if isinstance(node, list):
            return self._union([part for part in node if part != "null"], raw, space, path)
        if isinstance(node, str):
            named = self._named.get(_full_name(node, space)) or self._named.get(node)
            return self.form(named[0], raw, named[1], path) if named else Form(raw)
        if not isinstance(node.get("type"), str):
            return self.form(node.get("type", "null"), raw, space, path)
        return (
            self._nested(node, raw, space, path)
            or _logical(node, raw)
            or (
                # A type by name, or a primitive one.
                self.form(node["type"], raw, space, path)
                if node["type"] not in ("fixed", "enum")
                else Form(raw)
            )
        )

    def _nested(self, node: dict[str, Any], raw: T.DataType, space: str, path: str) -> Form | None:
        kind = node["type"]
        if kind == RECORD and isinstance(raw, T.StructType):
            return self._record(node, raw, space, path)
        if kind == ARRAY and isinstance(raw, T.ArrayType):
            element = self.form(node["items"], raw.elementType, space, f"{path}[]")
            return Form(T.ArrayType(element.dtype, raw.containsNull), ARRAY, parts=(("", element),))
        if kind == MAP and isinstance(raw, T.MapType):
            value = self.form(node["values"], raw.valueType, space, f"{path}{{}}")
            dtype = T.MapType(raw.keyType, value.dtype, raw.valueContainsNull)
            return Form(dtype, MAP, parts=(("", value),))
        return Form(raw) if kind in (RECORD, ARRAY, MAP) else None

    def _record(self, node: dict[str, Any], raw: T.StructType, space: str, path: str) -> Form:
        if "name" in node:
            full = _full_name(node["name"], node.get("namespace", space))
            space = full.rpartition(".")[0]
        own = {field["name"]: field["type"] for field in node["fields"]}
        parts = [
            (f.name, self.form(own[f.name], f.dataType, space, f"{path}.{f.name}".lstrip(".")))
            for f in raw.fields
            if f.name in own
        ]
        fields = [T.StructField(name, part.dtype, True) for name, part in parts]
        return Form(T.StructType(fields), RECORD, parts=tuple(parts))

    def _union(self, members: list[Node], raw: T.DataType, space: str, path: str) -> Form:
        if len(members) < 2:  # noqa: PLR2004
            return self.form(members[0] if members else "null", raw, space, path)
        if isinstance(raw, T.StructType):
            parts = tuple(
                (field.name, self.form(member, field.dataType, space, path))
                for member, field in zip(members, raw.fields, strict=True)
            )
            return Form(T.StringType(), UNION, parts=parts)
        if any(isinstance(member, dict) and "logicalType" in member for member in members):
            raise UnclearUnionError(path)
        return Form(raw)


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _plain(raw: T.DataType) -> Form:
    return Form(raw)


def _logical(node: Mapping[str, Any], raw: T.DataType) -> Form | None:
    """Return the form of a logical type that Spark does not read; None for others."""
    kind, name = str(node["type"]), str(node.get("logicalType", ""))
    dtype = _LOGICAL.get((kind, name))
    is_other = dtype is None or node.get("size") != _SIZES.get(name, node.get("size"))
    if is_other or (name == "decimal" and not _is_wide(node)):
        return None
    return Form(dtype or raw, name, int(node.get("scale", 0) if name == "decimal" else 0))
