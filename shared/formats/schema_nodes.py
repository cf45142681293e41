"""From any tap's JSON Schema to Spark types, keeping what has no Spark type as JSON text.

The keyword `x-spark-type` names the exact type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from shared.formats.spark_types import T

HINT = "x-spark-type"
"""Keyword with the exact Spark type, if standard keywords cannot express it."""

INTEGER_WIDTHS: dict[type[T.DataType], tuple[int, int]] = {
    T.ByteType: (-(2**7), 2**7 - 1),
    T.ShortType: (-(2**15), 2**15 - 1),
    T.IntegerType: (-(2**31), 2**31 - 1),
    T.LongType: (-(2**63), 2**63 - 1),
}
"""Smallest and largest value of each integer type, narrowest first."""

TEXTS = (T.StringType, T.CharType, T.VarcharType)

MAX_DIGITS = 38
"""The most digits a decimal holds."""

_NUMERIC_SQL = re.compile(r"^(?:numeric|decimal|number)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)$")
_SQL_TYPES: dict[str, T.DataType] = {
    **dict.fromkeys(("bigint", "int8", "bigserial"), T.LongType()),
    **dict.fromkeys(("integer", "int", "int4", "serial", "mediumint"), T.IntegerType()),
    **dict.fromkeys(("smallint", "int2", "smallserial", "tinyint"), T.ShortType()),
    **dict.fromkeys(("real", "float4"), T.FloatType()),
    **dict.fromkeys(("double", "double precision", "float", "float8"), T.DoubleType()),
    **dict.fromkeys(("timestamp without time zone", "timestamp_ntz"), T.TimestampNTZType()),
    **dict.fromkeys(("timestamp", "timestamptz", "timestamp with time zone"), T.TimestampType()),
    **dict.fromkeys(("boolean", "bool"), T.BooleanType()),
    "date": T.DateType(),
}


def hint_of(data_type: T.DataType) -> str:
    """Return the hint of a scalar type, which `type_of_hint` reads."""
    if isinstance(data_type, T.StringType):
        return data_type.simpleString()
    return str(data_type.jsonValue())


def type_of_hint(hint: object) -> T.DataType | None:
    """Return the scalar type of a hint; None if it is not a hint."""
    if not isinstance(hint, str):
        return None
    if hint.startswith("string collate "):
        return T.StringType(hint[len("string collate ") :])
    field: dict[str, Any] = {"name": "value", "type": hint, "nullable": True, "metadata": {}}
    try:
        return T.StructType.fromJson({"type": "struct", "fields": [field]})[0].dataType
    except Exception:  # pyspark raises many kinds; such a hint is ignored
        return None


def decimal_bounds(digits: int) -> tuple[int, int]:
    """Return the smallest and largest integer of that many digits."""
    return -(10**digits) + 1, 10**digits - 1


def type_of_sql(name: object) -> T.DataType | None:
    """Return the Spark type of an `x-sql-datatype`; None if it is not a known exact type."""
    if not isinstance(name, str):
        return None
    word = " ".join(name.lower().split())
    numeric = _NUMERIC_SQL.match(word)
    if numeric:
        precision, scale = int(numeric[1]), int(numeric[2] or 0)
        fits = 0 < precision <= MAX_DIGITS and scale <= precision
        return T.DecimalType(precision, scale) if fits else None
    return _SQL_TYPES.get(word)


FREE_FORM_COLUMN = "data"
"""The one column of a stream whose schema has no properties: each record as JSON text."""

MOST_LEVELS = 32
"""Levels of objects and arrays that become types; deeper ones are JSON text.

Arrow reads 100 levels of Parquet, of which an array takes two; `deltalake` reads 128 of a schema as
JSON, of which an object takes three.
"""

Node = Mapping[str, Any]
Typed = tuple[T.DataType, bool]

_TEXT = T.StringType()
_UNBOUNDED_INTEGER_DIGITS = 20
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_WIDE = Context(prec=100)
_STRING_FORMATS: dict[str, T.DataType] = {"date": T.DateType(), "date-time": T.TimestampType()}
_DECIMAL_FORMATS = ("singer.decimal", "x-singer.decimal")
_FAMILIES: dict[type[T.DataType], str] = {
    **dict.fromkeys(
        (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DecimalType), "integer number"
    ),
    **dict.fromkeys((T.FloatType, T.DoubleType), "number"),
    T.BooleanType: "boolean",
    T.VariantType: "",
}
_PYTHON_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    Decimal: "number",
    str: "string",
    dict: "object",
    list: "array",
    type(None): "null",
}


class JsonText(T.StringType):
    """A string column for any JSON value: strings unchanged, all others as JSON text."""

    @classmethod
    def typeName(cls) -> str:  # noqa: N802
        """Return the name of the string type, which it is for Spark."""
        return "string"


def json_schema_to_spark(schema: Mapping[str, Any], text: T.DataType = _TEXT) -> T.StructType:
    """Return the columns of a stream, the inverse of `spark_to_json_schema`.

    Args:
        schema: A stream's JSON Schema, of this tap or any other. A schema without properties
            has the single column `FREE_FORM_COLUMN`.
        text: The type of columns of JSON text.
    """
    reader = _SchemaReader(schema, text)
    root = reader.resolve(schema, ())[0]
    if root.get("properties"):
        return reader.struct(root, ())
    if root.get(HINT) == "struct":
        return T.StructType([])
    return T.StructType([T.StructField(FREE_FORM_COLUMN, text, True)])


@dataclass
class _SchemaReader:
    """Walks one schema document; `seen` holds the references that led to a node."""

    document: Node
    text: T.DataType = _TEXT
    _depth: int = field(default=0, init=False)

    def resolve(self, node: Node, seen: tuple[str, ...]) -> tuple[Node, tuple[str, ...]]:
        """Follow `$ref` and merge `allOf`; a circle or a foreign reference becomes `{}`."""
        while isinstance(node.get("$ref"), str):
            reference = node["$ref"]
            target = self._lookup(reference)
            if reference in seen or target is None:
                return {}, seen
            seen = (*seen, reference)
            node = {**target, **{k: v for k, v in node.items() if k != "$ref"}}
        for part in node.get("allOf") or ():
            if isinstance(part, Mapping):
                folded, seen = self.resolve(part, seen)
                node = _fold(node, folded)
        return node, seen

    def _lookup(self, reference: str) -> Node | None:
        if not reference.startswith("#"):
            return None
        target: Any = self.document
        for word in reference[1:].strip("/").split("/"):
            key = word.replace("~1", "/").replace("~0", "~")
            if key:
                target = target.get(key) if isinstance(target, Mapping) else None
        return target if isinstance(target, Mapping) else None

    def value(self, node: object, seen: tuple[str, ...] = ()) -> Typed:
        """Return the type of a schema node and whether it allows null."""
        if not isinstance(node, Mapping):
            return self.text, True
        node, seen = self.resolve(node, seen)
        choices = node.get("anyOf") or node.get("oneOf")
        if choices:
            return self._union(node, choices, seen)
        types = _types(node)
        plain = [name for name in types if name != "null"]
        nullable = "null" in types or not types or None in (node.get("enum") or ())
        if not plain:
            return (T.NullType(), True) if types else (self.text, True)
        if len(plain) > 1:
            hinted = type_of_hint(node.get(HINT))
            if isinstance(hinted, T.VariantType):
                return hinted, nullable
            if sorted(plain) != ["integer", "number"]:
                return self.text, nullable
            plain = ["number"]
        return self._single(plain[0], node, seen), nullable

    def _union(self, node: Node, choices: Sequence[object], seen: tuple[str, ...]) -> Typed:
        base = {k: v for k, v in node.items() if k not in ("anyOf", "oneOf", "allOf")}
        merged = [_fold(c, base) if isinstance(c, Mapping) else c for c in choices]
        typed = [self.value(choice, seen) for choice in merged]
        nullable = any(null for _, null in typed)
        kinds = [kind for kind, _ in typed if not isinstance(kind, T.NullType)]
        if not kinds:
            return T.NullType(), True
        if all(kind == kinds[0] for kind in kinds):
            return kinds[0], nullable
        if all(isinstance(kind, T.LongType | T.DoubleType) for kind in kinds):
            return T.DoubleType(), nullable
        if all(isinstance(kind, T.StringType | T.DateType | T.TimestampType) for kind in kinds):
            has_text = any(type(kind) is type(self.text) for kind in kinds)
            return (self.text if has_text else T.StringType()), nullable
        return self.text, nullable

    def _single(self, name: str, node: Node, seen: tuple[str, ...]) -> T.DataType:
        if name in ("object", "array"):
            if self._depth == MOST_LEVELS:
                return self.text
            self._depth += 1
            nested = (self._object if name == "object" else self._array)(node, seen)
            self._depth -= 1
            return nested
        # A hint or SQL name counts if the standard keywords agree with it.
        for keyword, type_of in _HINTS.items():
            refined = type_of(node[keyword]) if keyword in node else None
            if refined is not None and name in _words(refined, node).split():
                return refined
        return _SCALARS[name](node) or self.text if name in _SCALARS else self.text

    def _array(self, node: Node, seen: tuple[str, ...]) -> T.DataType:
        items = node.get("items")
        if not isinstance(items, Mapping) or node.get("prefixItems"):
            return self.text
        element, nullable = self.value(items, seen)
        return T.ArrayType(element, nullable)

    def _object(self, node: Node, seen: tuple[str, ...]) -> T.DataType:
        if node.get("properties"):
            return self.struct(node, seen)
        if node.get(HINT) == "struct":
            return T.StructType([])
        values = node.get("additionalProperties")
        if not isinstance(values, Mapping) or not values or node.get("patternProperties"):
            return self.text
        names = node.get("propertyNames")
        hint = names.get(HINT) if isinstance(names, Mapping) else None
        key = self.value(hint)[0] if isinstance(hint, Mapping) else T.StringType()
        value, nullable = self.value(values, seen)
        return T.MapType(key, value, nullable)

    def struct(self, node: Node, seen: tuple[str, ...]) -> T.StructType:
        required = node.get("required")
        names = required if isinstance(required, list) else []
        fields = []
        for name, child in node["properties"].items():
            data_type, nullable = self.value(child, seen)
            fields.append(T.StructField(name, data_type, nullable or name not in names))
        return T.StructType(fields)


def _fold(node: Node, part: Node) -> Node:
    """Add the keywords of `part` to `node`, which keeps its own."""
    folded = {**part, **node}
    if isinstance(part.get("properties"), Mapping) and isinstance(node.get("properties"), Mapping):
        folded["properties"] = {**node["properties"], **part["properties"], **node["properties"]}
    if isinstance(part.get("required"), list) and isinstance(node.get("required"), list):
        folded["required"] = [*node["required"], *part["required"]]
    return folded


def _types(node: Node) -> list[str]:
    """Return the words of `type`, inferred from other keywords if it is missing."""
    declared = node.get("type")
    if isinstance(declared, str):
        return [declared]
    if isinstance(declared, list):
        return [name for name in declared if isinstance(name, str)]
    if "properties" in node or "additionalProperties" in node:
        return ["object", "null"]
    if "items" in node:
        return ["array", "null"]
    values = list(node.get("enum") or ([node["const"]] if "const" in node else []))
    return list(dict.fromkeys(_PYTHON_TYPES.get(type(value), "string") for value in values))


def type_words(node: Mapping[str, Any]) -> set[str]:
    """Return the words of `type` alone; see `node_types`."""
    types = node.get("type") or ()
    return {types} if isinstance(types, str) else set(types)


def _words(data_type: T.DataType, node: Node) -> str:
    if isinstance(data_type, T.TimestampType | T.TimestampNTZType):
        return "string" if node.get("format") == "date-time" else ""
    if isinstance(data_type, T.DateType):
        return "string" if node.get("format") == "date" else ""
    return _FAMILIES.get(type(data_type), "string")


def _string(node: Node) -> T.DataType:
    if node.get("contentEncoding") == "base64":
        return T.BinaryType()
    form = node.get("format")
    precision: Any = node.get("precision")
    scale: Any = node.get("scale") or 0
    fits = isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision
    if form in _DECIMAL_FORMATS and fits and 0 < precision <= MAX_DIGITS:
        return T.DecimalType(precision, scale)
    return _STRING_FORMATS.get(form, T.StringType()) if isinstance(form, str) else T.StringType()


def _integer(node: Node) -> T.DataType | None:
    """Return the exact width, or long if the schema has none; None beyond 38 digits."""
    if _BOUNDS.isdisjoint(node):
        return T.LongType()
    low, high = _bound(node, "inimum"), _bound(node, "aximum")
    for kind, width in INTEGER_WIDTHS.items():
        if low == width[0] and high == width[1]:
            return kind()
    smallest, largest = INTEGER_WIDTHS[T.LongType]
    if (low is None or low >= smallest) and (high is None or high <= largest):
        return T.LongType()
    widest = max(bound.copy_abs() for bound in (low, high) if bound is not None)
    return T.DecimalType(MAX_DIGITS, 0) if widest <= decimal_bounds(MAX_DIGITS)[1] else None


def _number(node: Node) -> T.DataType | None:
    """Return a decimal with the scale of `multipleOf`, else double; None beyond 38 digits."""
    step = _decimal(node.get("multipleOf"))
    if step is None or step <= 0:
        return T.DoubleType()
    exponent = step.normalize(_WIDE).as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    bounds = [_bound(node, "inimum"), _bound(node, "aximum")]
    widths = [len(str(abs(int(bound)))) for bound in bounds if bound is not None]
    digits = max(widths) if len(widths) == len(bounds) else _UNBOUNDED_INTEGER_DIGITS
    return T.DecimalType(MAX_DIGITS, scale) if digits + scale <= MAX_DIGITS else None


def _bound(node: Node, ending: str) -> Decimal | None:
    """Read `minimum`/`maximum`, or their exclusive forms (in Draft 4 a boolean, not a number)."""
    bound = _decimal(node.get("m" + ending))
    exclusive = _decimal(node.get("exclusiveM" + ending))
    return bound if bound is not None else exclusive


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


_HINTS: Mapping[str, Callable[[object], T.DataType | None]] = {
    HINT: type_of_hint,
    "x-sql-datatype": type_of_sql,
}
_SCALARS: Mapping[str, Callable[[Node], T.DataType | None]] = {
    "integer": _integer,
    "number": _number,
    "boolean": lambda _: T.BooleanType(),
    "string": _string,
}


def resolved_node(document: Node, node: Node) -> Node:
    """Follow the references of a node and merge the parts of its `allOf`."""
    return _SchemaReader(document).resolve(node, ())[0]


def object_node(document: Node, node: Node) -> Node | None:
    """Return the description of an object's properties, also inside `anyOf` and `oneOf`."""
    node = resolved_node(document, node)
    if node.get("properties"):
        return node
    choices = node.get("anyOf") or node.get("oneOf") or ()
    inside = (object_node(document, item) for item in choices if isinstance(item, Mapping))
    return next((item for item in inside if item is not None), None)


def node_types(node: Node) -> frozenset[str] | None:
    """Return the words of `type`, as far as they are known; None for a node that takes anything."""
    choices = node.get("anyOf") or node.get("oneOf")
    if not choices:
        return frozenset(_types(node)) or None
    below = [node_types(item) if isinstance(item, Mapping) else None for item in choices]
    types_below = [types for types in below if types is not None]
    return frozenset().union(*types_below) if len(types_below) == len(below) else None


def is_free_form(schema: Mapping[str, Any]) -> bool:
    """Return whether the schema has no properties, so that records are kept as JSON text."""
    root = _SchemaReader(schema).resolve(schema, ())[0]
    return not root.get("properties") and root.get(HINT) != "struct"


def only_properties(schema: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return a stream's schema with only those of its properties, also in `required`."""
    properties = {name: node for name, node in schema["properties"].items() if name in names}
    changed: dict[str, Any] = {**schema, "properties": properties}
    if "required" in schema:
        changed["required"] = [name for name in schema["required"] if name in names]
    return changed
