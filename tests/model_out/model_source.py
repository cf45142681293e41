"""A source whose messages are known: it sends the same ones again from any STATE on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import types as T  # noqa: N812

from shared.json_schema import spark_to_json_schema

KEY_FIELDS = (
    T.StructField("n", T.LongType()),  # number of the record, never the same twice
    T.StructField("k", T.IntegerType()),
    T.StructField("g", T.StringType()),
)
FIRST_FIELDS = (
    T.StructField("w", T.IntegerType()),
    T.StructField("f", T.FloatType()),
    T.StructField("d", T.DecimalType(8, 2)),
    T.StructField("o", T.StructType([T.StructField("x", T.LongType())])),
)
WIDER: dict[str, T.DataType] = {
    "w": T.LongType(),
    "f": T.DoubleType(),
    "d": T.DecimalType(16, 2),
}
NESTED = T.StructType([T.StructField("x", T.LongType()), T.StructField("y", T.StringType())])
NEW_TYPES: tuple[T.DataType, ...] = (
    T.StringType(),
    T.BooleanType(),
    T.LongType(),
    T.DoubleType(),
    NESTED,
    T.ArrayType(T.LongType()),
    T.ArrayType(NESTED),
)


@dataclass
class Stream:
    """What a stream is at the source now."""

    name: str
    keys: tuple[str, ...] = ()
    fields: dict[str, T.StructField] = field(
        default_factory=lambda: {f.name: f for f in (*KEY_FIELDS, *FIRST_FIELDS)}
    )
    gone: dict[str, T.StructField] = field(default_factory=dict)
    version: int | None = None

    @property
    def optional(self) -> list[str]:
        own = {f.name for f in KEY_FIELDS}
        return [name for name in self.fields if name not in own]

    def schema_line(self) -> bytes:
        schema = spark_to_json_schema(T.StructType(list(self.fields.values())))
        message = {"type": "SCHEMA", "stream": self.name, "schema": schema}
        return _line({**message, "key_properties": list(self.keys)})


def add_column(stream: Stream, place: int) -> bool:
    name = f"c{len(stream.fields) + len(stream.gone)}"
    stream.fields[name] = T.StructField(name, NEW_TYPES[place % len(NEW_TYPES)])
    return True


def widen_column(stream: Stream, place: int) -> bool:
    name, dtype = list({**WIDER, "o": NESTED}.items())[place % 4]
    is_new = name in stream.fields and stream.fields[name].dataType != dtype
    if is_new:
        stream.fields[name] = T.StructField(name, dtype)
    return is_new


def drop_column(stream: Stream, place: int) -> bool:
    if not stream.optional:
        return False
    name = stream.optional[place % len(stream.optional)]
    stream.gone[name] = stream.fields.pop(name)
    return True


def bring_column_back(stream: Stream, place: int) -> bool:
    if not stream.gone:
        return False
    name = sorted(stream.gone)[place % len(stream.gone)]
    stream.fields[name] = stream.gone.pop(name)
    return True


Change = Callable[[Stream, int], bool]
CHANGES: tuple[Change, ...] = (add_column, widen_column, drop_column, bring_column_back)
"""How a stream's columns may change; each tells whether they have."""


@dataclass(frozen=True)
class Entry:
    """One message, by what a run that begins after it must know."""

    line: bytes
    schema_of: str | None = None


@dataclass
class Source:
    """Every message of every stream in its order; a STATE is the place behind it."""

    streams: dict[str, Stream]
    log: list[Entry] = field(default_factory=list)
    records: int = 0

    def __post_init__(self) -> None:
        for name in self.streams:
            self.schema(name)

    def schema(self, name: str) -> None:
        self.log.append(Entry(self.streams[name].schema_line(), name))

    def record(self, name: str, values: dict[str, Any]) -> None:
        self.records += 1
        version = self.streams[name].version
        record = {"n": self.records, **values}
        message = {"type": "RECORD", "stream": name, "record": record}
        self.log.append(
            Entry(_line(message if version is None else {**message, "version": version}))
        )

    def activate(self, name: str) -> None:
        version = self.streams[name].version
        message = {"type": "ACTIVATE_VERSION", "stream": name, "version": version}
        self.log.append(Entry(_line(message)))

    def state(self) -> None:
        place = len(self.log) + 1
        self.log.append(Entry(_line({"type": "STATE", "value": {"at": place}})))

    def since(self, place: int) -> list[bytes]:
        """What is sent to a run that begins at a STATE: the schemas of then, then the rest."""
        schemas: dict[str, bytes] = {}
        for entry in self.log[:place]:
            if entry.schema_of is not None:
                schemas[entry.schema_of] = entry.line
        return [*schemas.values(), *(entry.line for entry in self.log[place:])]


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
