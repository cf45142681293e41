"""Files at random, read by the driver and by Spark: equal catalogs, rows and states."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from shared.engine.engine import Engine
from shared.errors import SingerSparkError
from shared.singer.stdout import MessageOutput
from tap_spark.config import tap_config
from tap_spark.plan.discovery import discovered_catalog
from tap_spark.send import sync
from tap_spark.sources.files import driver_files

pytestmark = [pytest.mark.spark, pytest.mark.soak]
COMPARED = 3

Random = random.Random
TEXT = ["a", "Zoë", "x y", " lead", "trail ", "", "\t", "\\", '\\"', "'", "#", "-", "null", "NaN"]
ODD = ["\x01", "\x1f", "\x7f", "\u2028", "\u00a0", "🎉", "\ufffd", "\x0b", "\x1c", "\b", "\f"]
KINDS: dict[str, Callable[[Random], str]] = {
    "int": lambda r: str(r.randint(-(10 ** r.randint(1, 15)), 10 ** r.randint(1, 15))),
    "long": lambda r: str(r.randint(-(2**63), 2**63 - 1)),
    "big": lambda r: str(r.randint(-(10**38) + 1, 10**38 - 1)),
    "money": lambda r: f"{r.randint(-10000, 10000) / 100:.2f}",
    "fixed": lambda r: f"{r.randint(-9999, 9999)}.{r.randint(0, 9999999):07}",
    "double": lambda r: repr(r.randint(-(10**6), 10**6) / 10 ** r.randint(0, 6)),
    "number": lambda r: r.choice(["0", "-0.0", "0.5", "100", "12345678.5", "0.0001", "1e5", "7"]),
    "bool": lambda r: r.choice(["true", "false"]),
    "date": lambda r: f"{r.randint(1, 9999):04}-{r.randint(1, 12):02}-{r.randint(1, 28):02}",
    "local": lambda r: KINDS["date"](r) + r.choice("T ") + clock(r),
    "instant": lambda r: KINDS["local"](r) + r.choice(["Z", "+00:00", "-05:30", "+18:00"]),
    "text": lambda r: "".join(r.choices(TEXT, k=r.randint(0, 3))),
    "odd": lambda r: "".join(r.choices(TEXT + ODD + [",", '"', ";"], k=r.randint(0, 4))),
    "mixed": lambda r: KINDS[r.choice(["int", "money", "double", "date", "bool", "local"])](r),
}
DDL = {"int": "BIGINT", "money": "DECIMAL(10,2)", "double": "DOUBLE", "bool": "BOOLEAN"}
DDL |= {"date": "DATE", "instant": "timestamp", "local": "timestamp_ntz", "big": "DECIMAL(38, 0)"}


def clock(r: Random) -> str:
    seconds = f"{r.randint(0, 23):02}:{r.randint(0, 59):02}:{r.randint(0, 59):02}"
    return seconds + ("" if r.random() < 0.5 else f".{r.randint(0, 10 ** r.randint(1, 6) - 1)}")


def field(r: Random, value: str, separator: str) -> str:
    """Write a value, quoted if it must be, sometimes if not, and rarely wrong."""
    must = any(char in value for char in (separator, '"', "\n"))
    if r.random() < 0.002:
        return value + '"'
    if must or r.random() < 0.05:
        return '"' + value.replace('"', '""') + '"'
    return value


def lines(r: Random, kinds: list[str], separator: str, end: str, rows: int) -> bytes:
    written = []
    for _ in range(rows):
        values = [KINDS[kind](r) if r.random() > 0.1 else "" for kind in kinds]
        written.append(separator.join(field(r, value, separator) for value in values) + end)
        if r.random() < 0.02:
            written.append(end)
    data = "".join(written).encode()
    if r.random() < 0.05 and data:
        at = r.randrange(len(data))
        data = data[:at] + r.choice([b"\x00", b"\xff", b"\r", b'"', b"\\", b" "]) + data[at:]
    return data


class CsvFiles:
    """CSV files of random values, that grow."""

    def __init__(self, r: Random, folder: Path, name: str) -> None:
        self.random, self.folder = r, folder / name
        self.folder.mkdir()
        self.separator, self.end = r.choice(",,,;|\t"), r.choice(["\n", "\n", "\r\n"])
        self.kinds = r.choices(list(KINDS), k=r.randint(1, 6))
        self.header = r.random() < 0.8
        self.names = [r.choice(["id", "a b", "Ü", 'q"', "a.b", ""]) + str(n) for n in range(5)]
        self.names = [*self.names, "", "id0"][: len(self.kinds)]
        self.settings: dict[str, Any] = {"name": name, "format": "csv", "path": str(self.folder)}
        self.settings["options"] = {"sep": self.separator, "header": self.header}
        if r.random() < 0.7:
            self.settings["replication_method"] = "INCREMENTAL"
        if r.random() < 0.3:
            names = [f"c{n}" for n in range(len(self.kinds))]
            types = [DDL.get(kind, "STRING") for kind in self.kinds]
            self.settings["schema"] = ", ".join(map(" ".join, zip(names, types, strict=True)))
        self.grow()

    def grow(self) -> None:
        """Add lines to files, and add a file; some last lines have no end yet."""
        for number in range(self.random.randint(1, 3)):
            path = self.folder / f"{self.random.randint(0, 3) or number}.csv"
            data = lines(
                self.random, self.kinds, self.separator, self.end, self.random.randint(0, 30)
            )
            if self.header and not path.exists():
                names = [field(self.random, name, self.separator) for name in self.names]
                data = (self.separator.join(names) + self.end).encode() + data
            if self.random.random() < 0.2:
                data = data.rstrip(b"\r\n")
            with path.open("ab") as file:
                file.write(data)


SCALARS: dict[str, Callable[[Random], str]] = {
    "BIGINT": lambda r: KINDS[r.choice(["int", "long"])](r),
    "INT": lambda r: str(r.randint(-(2**31), 2**31 - 1)),
    "DOUBLE": lambda r: r.choice([repr, "{:e}".format])(
        r.randint(-(10**8), 10**8) / 10 ** r.randint(-6, 8)
    ),
    "BOOLEAN": KINDS["bool"],
    "STRING": lambda r: json.dumps(
        KINDS[r.choice(["text", "odd", "instant"])](r) + r.choice(["", "", "\n\r", "/"]),
        ensure_ascii=r.random() < 0.5,
    ),
}
RARE = ["1.0", "-0", "-0.0", "NaN", '""', '"1"', "9" * 30, "0.30000000000000004", "{}", "[]"]
RARE += ["1e400", "1e-400", "5e-324", "12345678901234567", "1e22", "true", '"\\u0001"', '"\\ud800"']
RARE += ["'a'", "01", "[1,null]", '["a",1]', '{"a":1,"a":2}', '{"b":1,"B":2}', '{"x":null}']


class JsonFiles:
    """Files of JSON lines with random values, that grow."""

    def __init__(self, r: Random, folder: Path, name: str) -> None:
        self.random, self.folder = r, folder / name
        self.folder.mkdir()
        self.shapes = {key: self.shape(2) for key in self.names()}
        self.rare = r.choice([0, 0, 0.01])
        self.settings: dict[str, Any] = {"name": name, "format": "json", "path": str(self.folder)}
        if r.random() < 0.7:
            self.settings["replication_method"] = "INCREMENTAL"
        plain = {key: kind for key, kind in self.shapes.items() if isinstance(kind, str)}
        if plain and all(key.isalnum() for key in plain) and r.random() < 0.4:
            self.settings["schema"] = ", ".join(f"`{k}` {kind}" for k, kind in plain.items())
            if r.random() < 0.9:
                self.settings["schema"] = self.settings["schema"].replace("`", "")
        self.grow()

    def names(self) -> list[str]:
        count = self.random.randint(1, 4)
        return self.random.sample(["id", "a b", "Ü", 'q"', "a.b", "z", "🎉", "\ufb01", "x1"], count)

    def shape(self, depth: int) -> Any:
        """Return a kind of scalar, the shapes of an object, or that of elements in a list."""
        choice = self.random.random()
        if not depth or choice < 0.7:
            return self.random.choice(list(SCALARS))
        if choice < 0.85:
            return {key: self.shape(depth - 1) for key in self.names()}
        return [self.shape(depth - 1)]

    def value(self, shape: Any) -> str:
        r = self.random
        if r.random() < self.rare:
            return r.choice(RARE)
        if r.random() < 0.1:
            return "null"
        if isinstance(shape, dict):
            return self.object(shape)
        if isinstance(shape, list):
            return "[" + ", ".join(self.value(shape[0]) for _ in range(r.randint(0, 3))) + "]"
        if shape == "DOUBLE" and r.random() < 0.1:
            return str(r.randint(-1000, 1000))
        return SCALARS[shape](r)

    def object(self, shapes: dict[str, Any]) -> str:
        r, shapes = self.random, dict(shapes)
        if r.random() < self.rare:
            shapes |= {r.choice(["new", "ID", "Id", "", "_metadata", "\t"]): "BIGINT"}
        keys = [key for key in shapes if r.random() > 0.1]
        r.shuffle(keys)
        colon = r.choice([":", ": ", " :\t"])
        ascii_only = r.random() < 0.5
        fields = (
            json.dumps(k, ensure_ascii=ascii_only) + colon + self.value(shapes[k]) for k in keys
        )
        return "{" + r.choice([",", ", "]).join(fields) + r.choice(["}", " }"])

    def grow(self) -> None:
        """Add lines to files, and add a file; some last lines have no end yet."""
        r, end = self.random, self.random.choice(["\n", "\n", "\r\n"])
        for number in range(r.randint(1, 3)):
            rows = [self.object(self.shapes) + end for _ in range(r.randint(0, 20))]
            rows = [row + (end if r.random() < 0.05 else "") for row in rows]
            data = "".join(rows).encode()
            if r.random() < self.rare * 5 and data:
                at = r.randrange(len(data))
                odd = [b"\x00", b"\xff", b"\r", b'"', b"\\", b" ", b"\n", b"\xef\xbb\xbf", b"  \n"]
                data = data[:at] + r.choice(odd) + data[at:]
            if r.random() < 0.2:
                data = data.rstrip(b"\r\n")
            data = data[: -r.randint(1, 9)] if r.random() < self.rare * 5 else data
            with (self.folder / f"{r.randint(0, 3) or number}.json").open("ab") as file:
                file.write(data)


class LeftToSparkError(Exception):
    """The driver asked for Spark."""


class NoSpark:
    """Stands for the start of Spark."""

    def start(self) -> None:
        """Do nothing: it may turn out to be needed."""

    def get(self) -> Any:
        raise LeftToSparkError

    context = get

    def running(self) -> Any:
        return None

    def stop(self) -> None:
        pass


class Runs:
    """Runs of the tap, by the driver or by Spark."""

    def __init__(
        self, spark: Any, folder: Path, patch: pytest.MonkeyPatch, batch: dict[str, Any] | None
    ) -> None:
        self.spark, self.out, self.patch = spark, folder / "out.jsonl", patch
        self.batch = {} if batch is None else {"batch_config": batch}

    def catalog(self, settings: dict[str, Any], *, by_spark: bool) -> Any:
        """Return the catalog, or the error."""
        with self._as(by_spark=by_spark) as engine:
            try:
                return discovered_catalog(engine, tap_config({"streams": [settings]}))
            except SingerSparkError as error:
                if not by_spark:
                    raise LeftToSparkError from error
                return str(error)

    def messages(
        self, settings: dict[str, Any], catalog: Any, state: Any, *, by_spark: bool
    ) -> list[dict[str, Any]]:
        """Return the messages, and the error if there is one."""
        config = tap_config({"streams": [settings], "state_interval_seconds": 1000, **self.batch})
        failed = []
        with self._as(by_spark=by_spark), self.out.open("wb") as file:
            output = MessageOutput(os.dup(file.fileno()))
            try:
                sync.run_sync(config, catalog, state, output)
            except SingerSparkError as error:
                if isinstance(error.__cause__, LeftToSparkError):
                    raise LeftToSparkError from error
                failed = [{"type": "error", "text": str(error)}]
            finally:
                output.close()
        return [*map(comparable, self.out.read_bytes().splitlines()), *failed]

    @contextmanager
    def _as(self, *, by_spark: bool) -> Iterator[Any]:
        engine = Engine.of(lambda: self.spark) if by_spark else Engine(NoSpark())
        with self.patch.context() as patch:
            patch.setattr(sync, "engine_of", lambda *_, **__: engine)
            yield engine


def comparable(line: bytes) -> dict[str, Any]:
    """Return a message without its time; of a RECORD, its text."""
    message: dict[str, Any] = json.loads(line)
    message.pop("version", None)
    if message["type"] == "BATCH":
        (url,) = message["manifest"]
        return {"type": "BATCH", "table": pq.read_table(url.removeprefix("file://"))}
    if message["type"] == "RECORD":
        del message["time_extracted"]
        message["record"] = line[line.index(b'"record":') : line.rindex(b',"time_extracted":')]
    return message


def ordered(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with the RECORDs and rows sorted, as Spark reads files in any order."""
    records = sorted(
        (m for m in messages if m["type"] == "RECORD"), key=lambda message: message["record"]
    )
    tables = [m["table"] for m in messages if m["type"] == "BATCH"]
    rows = sorted(repr(row) for table in tables for row in table.to_pylist())
    schemas = {str(table.schema.remove_metadata()) for table in tables}
    others = [m for m in messages if m["type"] not in ("RECORD", "BATCH")]
    return [*others, *records, {"rows": rows, "schemas": schemas}]


@pytest.mark.parametrize("files", [CsvFiles, JsonFiles])
@pytest.mark.parametrize("batch", [False, True])
def test_the_driver_reads_as_spark_does(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, batch: bool, files: Any
) -> None:
    monkeypatch.setattr(driver_files, "BLOCK_BYTES", 200)
    encoding = {"format": "parquet", "compression": "snappy"}
    config = {"encoding": encoding, "storage": {"root": str(tmp_path / "batches")}}
    runs = Runs(spark, tmp_path, monkeypatch, config if batch else None)
    r, compared = Random(seed), 0
    for number in count():
        if compared >= COMPARED:
            break
        stream, state = files(r, tmp_path, f"s{number}"), None
        # Whatever the driver leaves to Spark ends the stream.
        with suppress(LeftToSparkError):
            for _ in range(2):
                catalog = runs.catalog(stream.settings, by_spark=False)
                assert catalog == runs.catalog(stream.settings, by_spark=True)
                actual = runs.messages(stream.settings, catalog, state, by_spark=False)
                expected = runs.messages(stream.settings, catalog, state, by_spark=True)
                assert ordered(actual) == ordered(expected)
                compared += 1
                state = [m["value"] for m in actual if m["type"] == "STATE"][-1]
                stream.grow()
