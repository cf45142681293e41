"""YAML as JSON has it: of plain words only JSON's numbers, true, false and null are not text.

YAML 1.1, which PyYAML reads, takes `no` and `on` for booleans, `010` for 8, `1:30` for 90 and
`2026-01-01` for a date; here they stay text.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from shared.settings.checking import Json

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset({"str", "int", "float", "bool", "null", "timestamp", "merge", "value"})


def yaml_value(data: bytes) -> Json:
    """Read one YAML document.

    Raises:
        ValueError: With what is wrong, and the line.
        UnicodeDecodeError: It is not text.
        RecursionError: It is nested too deeply, or contains itself.
    """
    try:
        root = yaml.compose(data, Loader=_LOADER)
        return None if root is None else _value(root, {})
    except yaml.reader.ReaderError as error:
        raise ValueError(f"not valid YAML: {error.reason}") from None
    except yaml.MarkedYAMLError as error:
        raise _wrong(error.problem or error.context, error.problem_mark) from None


def _wrong(problem: str, mark: Any) -> ValueError:
    return ValueError(
        f"not valid YAML: {problem} at line {mark.line + 1}, column {mark.column + 1}"
    )


def _value(node: Any, done: dict[int, Json]) -> Json:
    """Return the value of a node; an anchor has one, however often it is used."""
    if id(node) not in done:
        done[id(node)] = _new_value(node, done)
    return done[id(node)]


def _new_value(node: Any, done: dict[int, Json]) -> Json:
    kind = node.tag.removeprefix(_TAG)
    if isinstance(node, yaml.ScalarNode) and kind in _PLAIN_TAGS:
        return _scalar(node.value, "str" if node.style in ("'", '"', "|", ">") else kind)
    if isinstance(node, yaml.SequenceNode) and kind == "seq":
        return [_value(item, done) for item in node.value]
    if isinstance(node, yaml.MappingNode) and kind == "map":
        return _mapping(node, done)
    raise _wrong(f"the tag {node.tag!r} is not supported", node.start_mark)


def _scalar(text: str, kind: str) -> Json:
    if kind == "null":
        return None
    is_json = kind in ("int", "float") or (kind == "bool" and text.lower() in ("true", "false"))
    try:
        return json.loads(text.lower()) if is_json else text
    except ValueError:
        return text


def _mapping(node: Any, done: dict[int, Json]) -> dict[str, Json]:
    keys: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _wrong("a key must be text", key.start_mark)
        if key.value in keys:
            raise _wrong(f"the key {key.value!r} is given twice", key.start_mark)
        keys.add(key.value)
    _LOADER("").flatten_mapping(node)  # `<<`
    return {key.value: _value(item, done) for key, item in node.value}
