"""Types that a catalog gives to columns, other than the source's: followed, or refused. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.errors import SourceError, Where
from shared.types.type_hints import HINT

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

Node = Mapping[str, Any]
TEXT_FORMATS = ("csv", "json", "fixed_width", "xml")
"""Formats whose values are text in the file, which a column of type string keeps."""
_TIMES = ("date", "date-time", "time")
_OF_OTHER_TYPES = (HINT, "minimum", "maximum", "multipleOf", "format", "contentEncoding")
_NESTED = ("properties", "items", "additionalProperties", "propertyNames", "required")


@dataclass(frozen=True)
class TypedColumns:
    """The columns of a stream with the types that the catalog gives them.

    Attributes:
        schema: JSON Schema of the selected properties.
        source_schema: The source's schema as Spark's JSON text.
        as_text: Columns whose values become text once they are read.
    """

    schema: dict[str, Any]
    source_schema: str | None
    as_text: tuple[str, ...] = ()


def typed_columns(
    stream: str, form: str, schema: dict[str, Any], source_schema: str | None, key: str | None
) -> TypedColumns:
    """Compare the types of the catalog with those of the source.

    Args:
        stream: The stream, for errors.
        form: The stream's format.
        schema: JSON Schema of the selected properties.
        source_schema: The source's schema as Spark's JSON text; None if the catalog lacks it.
        key: The replication key, whose type stays.

    Raises:
        SourceError: Records cannot follow the catalog.
    """
    if source_schema is None:
        return TypedColumns(schema, None)
    from pyspark.sql.types import StringType, StructType  # noqa: PLC0415

    from shared.types.json_schema import spark_to_json_schema  # noqa: PLC0415

    struct = StructType.fromJson(json.loads(source_schema))
    source = spark_to_json_schema(struct)["properties"]
    properties, types = dict(schema["properties"]), {f.name: f.dataType for f in struct.fields}
    changed: list[str] = []
    for name, node in schema["properties"].items():
        problem = _difference(node, source.get(name, {}))
        if problem is None:
            continue
        if problem or name == key:
            raise _refused(stream, name, problem, node, types[name], is_key=name == key)
        changed.append(name)
        dropped = (*_OF_OTHER_TYPES, *_NESTED)
        properties[name] = {k: v for k, v in node.items() if k not in dropped}
    if not changed:
        return TypedColumns(schema, source_schema)
    schema = {**schema, "properties": properties}
    if form not in TEXT_FORMATS:
        return TypedColumns(schema, source_schema, tuple(changed))
    for field in struct.fields:
        if field.name in changed:
            field.dataType = StringType()
    text = json.dumps(struct.jsonValue(), separators=(",", ":"))
    return TypedColumns(schema, text)


def _difference(node: object, source: Node) -> str | None:
    """Compare a catalog's type with the source's.

    Returns:
        None if values of the source have the catalog's type, an empty text if it is text, else
        the dotted name of what differs.
    """
    if not isinstance(node, Mapping):
        return None
    want, have = _types(node), _types(source)
    if want is None or have is None:
        return None
    if not have <= want | ({"integer"} if "number" in want else set()):
        return "" if want == {"string"} and node.get("format") not in _TIMES else "."
    if have == want == {"string"}:
        return _difference_of_text(node, source)
    for name, inner in (node.get("properties") or {}).items():
        found = _difference(inner, (source.get("properties") or {}).get(name, {}))
        if found is not None:
            return f".{name}{found}"
    items = node.get("items")
    found = _difference(items, source.get("items") or {}) if items else None
    return None if found is None else f".items{found}"


def _difference_of_text(node: Node, source: Node) -> str | None:
    want, have = node.get("format"), source.get("format")
    if want == have or not (want in _TIMES or have in _TIMES):
        return "" if source.get("contentEncoding") and not node.get("contentEncoding") else None
    return "." if want in _TIMES else ""


def _types(node: Node) -> set[str] | None:
    """Return the types without null; None if everything is allowed, or it is told otherwise."""
    given = node.get("type")
    if given is None:
        return None
    found = {given} if isinstance(given, str) else set(given)
    return found - {"null"} or None


def _refused(
    stream: str, name: str, problem: str, node: Node, dtype: DataType, *, is_key: bool
) -> SourceError:
    place = name + problem.rstrip(".")
    wanted = json.dumps({k: v for k, v in node.items() if k in ("type", "format")})
    reason = "the replication key keeps its type" if is_key else "only text can be chosen instead"
    return SourceError(
        f"the catalog gives '{place}' a type that the source does not have "
        f"({wanted if place == name else 'inside'}; it is {dtype.simpleString()}): {reason}",
        where=Where(stream=stream),
        hint="run --discover again, set the stream's 'schema', or cast by a stream map",
    )
