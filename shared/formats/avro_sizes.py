"""What the values of an Avro block take as Python objects, which is far more than their bytes.

A block of zeros that packs into a few kilobytes may be an array of a hundred million records.
https://avro.apache.org/docs/1.12.0/specification/#complex-types
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_POINTER = 8
_OBJECT = 56
_DICT = 184
_ENCODED = {"null": 0, "float": 4, "double": 8}


@dataclass(frozen=True)
class ObjectSizes:
    """What a value of a schema takes.

    Attributes:
        encoded: Its bytes in a block at the least.
        python: Its bytes as an object, without what arrays and maps hold.
        growth: Bytes of objects for each encoded byte in the worst of its arrays and maps.
    """

    encoded: int
    python: int
    growth: float = 0.0


def object_sizes(schema: Any) -> ObjectSizes:
    """Return what a value of a parsed Avro schema takes."""
    return _sizes(schema, {})


def _sizes(node: Any, named: dict[str, ObjectSizes]) -> ObjectSizes:
    if isinstance(node, list):
        return _union([_sizes(choice, named) for choice in node])
    if isinstance(node, str):
        return named.get(node) or ObjectSizes(_ENCODED.get(node, 1), _OBJECT)
    return _complex(node, named)


def _complex(node: Mapping[str, Any], named: dict[str, ObjectSizes]) -> ObjectSizes:
    kind = node["type"]
    if kind in ("record", "error"):
        return _record(node, named)
    if kind == "array":
        return _repeated(_sizes(node["items"], named), key_bytes=0)
    if kind == "map":
        return _repeated(_sizes(node["values"], named), key_bytes=1)
    if kind in ("enum", "fixed"):
        size = node["size"] if kind == "fixed" else 1
        named[_name(node)] = ObjectSizes(size, _OBJECT + size)
        return named[_name(node)]
    return _sizes(kind, named)


def _record(node: Mapping[str, Any], named: dict[str, ObjectSizes]) -> ObjectSizes:
    named[_name(node)] = ObjectSizes(1, _DICT)  # for a field that is such a record again
    fields = [_sizes(field["type"], named) for field in node["fields"]]
    named[_name(node)] = ObjectSizes(
        sum(field.encoded for field in fields),
        _DICT + sum(2 * _POINTER + field.python for field in fields),
        max((field.growth for field in fields), default=0.0),
    )
    return named[_name(node)]


def _union(choices: list[ObjectSizes]) -> ObjectSizes:
    return ObjectSizes(
        1 + min((choice.encoded for choice in choices), default=0),
        max((choice.python for choice in choices), default=0),
        max((choice.growth for choice in choices), default=0.0),
    )


def _repeated(item: ObjectSizes, key_bytes: int) -> ObjectSizes:
    encoded = key_bytes + item.encoded
    python = _POINTER + item.python + key_bytes * (_POINTER + _OBJECT)
    return ObjectSizes(1, _OBJECT, max(item.growth, python / encoded if encoded else math.inf))


def _name(node: Mapping[str, Any]) -> str:
    return str(node.get("name", ""))
