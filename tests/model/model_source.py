"""A source whose messages are known: it sends the same ones again from any STATE on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T  # noqa: N812

from shared.formats.arrow_types import struct_to_arrow
from shared.formats.json_schema import spark_to_json_schema

VERSION, DELETED = "_sdc_table_version", "_sdc_deleted_at"
NUMBER = "n"
"""Column with the number of the record, never the same twice."""
CHANGING = "v"
"""Column whose type becomes one that has nothing in common with that of before."""
STRUCT = T.StructType([T.StructField("x", T.IntegerType())])
NESTED = T.StructType([T.StructField("x", T.LongType()), T.StructField("y", T.StringType())])
FIRST_FIELDS = (
    T.StructField(NUMBER, T.LongType()),
    T.StructField("k", T.IntegerType(), nullable=False),
    T.StructField("g", T.StringType()),
    T.StructField("r", T.IntegerType(), nullable=False),
    T.StructField("w", T.IntegerType()),
    T.StructField("f", T.FloatType()),
    T.StructField("d", T.DecimalType(8, 2)),
    T.StructField("o", STRUCT),
    T.StructField("l", T.ArrayType(STRUCT)),
    T.StructField(CHANGING, T.LongType()),
)
FIXED = (NUMBER, "k", "g")
"""Columns that a stream always has."""
WIDER: dict[str, T.DataType] = {
    "k": T.LongType(),
    "w": T.LongType(),
    "f": T.DoubleType(),
    "d": T.DecimalType(16, 2),
}
NEW_TYPES: tuple[T.DataType, ...] = (
    T.StringType(),
    T.BooleanType(),
    T.LongType(),
    T.DoubleType(),
    NESTED,
    T.ArrayType(T.LongType()),
    T.ArrayType(NESTED),
)
ALIEN_TYPES: tuple[T.DataType, ...] = (
    T.LongType(),
    T.DoubleType(),
    T.StringType(),
    T.BooleanType(),
    T.DateType(),
    STRUCT,
)
"""None of them holds the values of another."""
Form = str
FORMS: tuple[Form, ...] = ("record", "jsonl", "gzip", "parquet")
"""How records are sent: as RECORD lines, or in the files of a BATCH message."""


@dataclass
class Stream:
    """What a stream is at the source now."""

    name: str
    keys: tuple[str, ...] = ()
    fields: dict[str, T.StructField] = field(
        default_factory=lambda: {f.name: f for f in FIRST_FIELDS}
    )
    gone: dict[str, T.StructField] = field(default_factory=dict)
    version: int | None = None
    names: int = 0

    @property
    def optional(self) -> list[str]:
        return [name for name in self.fields if name not in FIXED]

    @property
    def struct(self) -> T.StructType:
        return T.StructType(list(self.fields.values()))

    def new_name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def retype(self, name: str, dtype: T.DataType, *, nullable: bool | None = None) -> bool:
        """Change the type of a column; return whether it had another type."""
        old = self.fields[name]
        nulls = old.nullable if nullable is None else nullable
        self.fields[name] = T.StructField(name, dtype, nulls)
        return self.fields[name] != old

    def with_type(self, name: str, dtype: T.DataType) -> Stream:
        """Return the stream as it would be with another type for a column."""
        return replace(self, fields={**self.fields, name: T.StructField(name, dtype)})

    def schema_line(self) -> bytes:
        schema = spark_to_json_schema(self.struct)
        message = {"type": "SCHEMA", "stream": self.name, "schema": schema}
        return line_of({**message, "key_properties": list(self.keys)})


def add_column(stream: Stream, chance: Random) -> bool:
    name = stream.new_name("c")
    stream.fields[name] = T.StructField(name, chance.choice(NEW_TYPES))
    return True


def widen_column(stream: Stream, chance: Random) -> bool:
    name = chance.choice(list(WIDER))
    return name in stream.fields and stream.retype(name, WIDER[name])


def drop_column(stream: Stream, chance: Random) -> bool:
    if not stream.optional:
        return False
    name = chance.choice(stream.optional)
    stream.gone[name] = stream.fields.pop(name)
    return True


def bring_column_back(stream: Stream, chance: Random) -> bool:
    if not stream.gone:
        return False
    name = chance.choice(sorted(stream.gone))
    stream.fields[name] = stream.gone.pop(name)
    return True


def require_no_more(stream: Stream, chance: Random) -> bool:
    required = [field for field in stream.fields.values() if not field.nullable]
    if not required:
        return False
    chosen = chance.choice(required)
    return stream.retype(chosen.name, chosen.dataType, nullable=True)


def change_inside(stream: Stream, chance: Random) -> bool:
    """Add, widen and drop fields of structs, also in lists; return whether one has changed."""
    nested = [f.name for f in stream.fields.values() if _struct_in(f.dataType) is not None]
    nested = [name for name in nested if name != CHANGING]
    if not nested:
        return False
    name = chance.choice(nested)
    dtype = stream.fields[name].dataType
    return stream.retype(name, _changed_inside(dtype, chance, stream.new_name("y")))


def _struct_in(dtype: T.DataType) -> T.StructType | None:
    inner = dtype.elementType if isinstance(dtype, T.ArrayType) else dtype
    return inner if isinstance(inner, T.StructType) else None


def _changed_inside(dtype: T.DataType, chance: Random, name: str) -> T.DataType:
    if isinstance(dtype, T.ArrayType):
        return T.ArrayType(_changed_inside(dtype.elementType, chance, name))
    assert isinstance(dtype, T.StructType)
    fields = list(dtype.fields)
    kind = chance.choice(["widen", "leave out", "add", "add"])
    if kind == "widen":
        fields[0] = T.StructField(fields[0].name, T.LongType())
    elif kind == "leave out" and len(fields) > 1:
        fields.pop()
    else:
        new = chance.choice([T.StringType(), T.LongType(), STRUCT])
        fields.append(T.StructField(name, new))
    return T.StructType(fields)


Change = Callable[[Stream, Random], bool]
CHANGES: tuple[Change, ...] = (
    add_column,
    widen_column,
    drop_column,
    bring_column_back,
    require_no_more,
    change_inside,
)
"""How a stream's columns may change; each returns whether they have."""


@dataclass(frozen=True)
class Entry:
    """One message, by what a run that begins after it must know.

    Attributes:
        line: The message.
        schema_of: Stream whose SCHEMA it is.
        rows_of: Stream that it has records of.
        columns: Of the records.
    """

    line: bytes
    schema_of: str | None = None
    rows_of: str | None = None
    columns: frozenset[str] = frozenset()


@dataclass
class Source:
    """Every message of every stream in its order; a STATE is the place behind it.

    Attributes:
        streams: By name.
        folder: Where files of BATCH messages go.
        log: All messages.
        records: How many there have been.
        files: What files of BATCH messages hold.
    """

    streams: dict[str, Stream]
    folder: Path
    log: list[Entry] = field(default_factory=list)
    records: int = 0
    files: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in self.streams:
            self.schema(name)

    def schema(self, name: str) -> None:
        self.log.append(Entry(self.streams[name].schema_line(), schema_of=name))

    def send(self, name: str, records: list[dict[str, Any]], form: Form = "record") -> None:
        """Send records in one of `FORMS`; files of a BATCH message hold two records at most."""
        stream = self.streams[name]
        rows = [{NUMBER: self.records + number, **row} for number, row in enumerate(records, 1)]
        self.records += len(rows)
        head = {"stream": name, **({} if stream.version is None else {"version": stream.version})}
        if form == "record":
            messages = [{"type": "RECORD", **head, "record": row} for row in rows]
        else:
            manifest = [
                self._file(stream, rows[start : start + 2], form)
                for start in range(0, len(rows), 2)
            ]
            kind = {
                "format": "parquet" if form == "parquet" else "jsonl",
                "compression": "gzip" if form == "gzip" else "none",
            }
            messages = [{"type": "BATCH", **head, "encoding": kind, "manifest": manifest}]
        columns = frozenset(stream.fields)
        self.log += [Entry(line_of(m), rows_of=name, columns=columns) for m in messages]

    def has_sent(self, name: str, column: str, since: int) -> bool:
        """Return whether records of a stream with a column are behind a STATE."""
        return any(e.rows_of == name and column in e.columns for e in self.log[since:])

    def activate(self, name: str) -> None:
        version = self.streams[name].version
        message = {"type": "ACTIVATE_VERSION", "stream": name, "version": version}
        self.log.append(Entry(line_of(message)))

    def state(self) -> None:
        place = len(self.log) + 1
        self.log.append(Entry(line_of({"type": "STATE", "value": {"at": place}})))

    def since(self, place: int) -> list[bytes]:
        """Return the messages for a run that begins at a STATE: first the schemas of then."""
        schemas: dict[str, bytes] = {}
        for entry in self.log[:place]:
            if entry.schema_of is not None:
                schemas[entry.schema_of] = entry.line
        return [*schemas.values(), *(entry.line for entry in self.log[place:])]

    def _file(self, stream: Stream, rows: list[dict[str, Any]], form: Form) -> str:
        path = self.folder / f"{stream.name}-{len(self.files)}.{form}"
        text = b"".join(line_of(row) for row in rows)
        if form == "parquet":
            struct = T.StructType([*stream.struct, T.StructField(DELETED, T.TimestampType())])
            values = [_plain_values(row, struct) for row in rows]
            pq.write_table(pa.Table.from_pylist(values, struct_to_arrow(struct)), path)
        else:
            path.write_bytes(gzip.compress(text) if form == "gzip" else text)
        marks = {} if stream.version is None else {VERSION: stream.version}
        self.files[str(path)] = [{**row, **marks} for row in rows]
        return str(path)


def line_of(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _plain_values(row: dict[str, Any], struct: T.StructType) -> dict[str, Any]:
    return {f.name: _plain_value(row.get(f.name), f.dataType) for f in struct}


def _plain_value(value: Any, dtype: T.DataType) -> Any:
    """Return a value of a record as Python has it for Arrow."""
    if value is None:
        return None
    if isinstance(dtype, T.StructType):
        return _plain_values(value, dtype)
    if isinstance(dtype, T.ArrayType):
        return [_plain_value(item, dtype.elementType) for item in value]
    created = _CREATED.get(type(dtype))
    return value if created is None else created(value, dtype)


_CREATED: dict[type[T.DataType], Callable[[Any, Any], Any]] = {
    T.DecimalType: lambda value, dtype: Decimal(str(value)).quantize(
        Decimal(1).scaleb(-dtype.scale)
    ),
    T.DateType: lambda value, _: date.fromisoformat(value),
    T.TimestampType: lambda value, _: datetime.fromisoformat(value.replace("Z", "+00:00")),
}
