"""Sources in plain Python: the same rows by threads and by Spark; errors that name their place."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import textwrap
from contextlib import closing
from dataclasses import replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engines import threads
from tap_runs import stream

from shared.engine.engine import Engine
from shared.errors import SourceError
from shared.singer.stdout import MessageOutput
from tap_spark.config import TapConfig, tap_config
from tap_spark.plan.discovery import discovered_catalog
from tap_spark.plan.replication import plan_streams
from tap_spark.send.line_output import LineOutput, StateWriter
from tap_spark.send.run import Run
from tap_spark.send.spool import Spool
from tap_spark.send.sync import sync_stream
from tap_spark.send.trials import run_test
from tap_spark.sources.row_source import Request, RowSource
from tap_spark.sources.source import source_for

SAMPLE = Path(__file__).resolve().parents[3] / "sample_configs" / "python_source"
UTC = timezone.utc
ARROW = pa.schema(
    [
        ("id", pa.int32()), ("text", pa.string()), ("flag", pa.bool_()),
        ("money", pa.decimal128(12, 2)),
        ("tiny", pa.decimal128(38, 20)), ("real", pa.float64()), ("single", pa.float32()),
        ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")),
        ("bytes", pa.binary()), ("list", pa.list_(pa.int64())),
        ("object", pa.struct([("a", pa.string()), ("at", pa.timestamp("us", "UTC"))])),
    ]
)  # fmt: skip
MOMENT = datetime(2026, 1, 31, 6, 0, 0, 5, UTC)
ALL: list[dict[str, Any]] = [
    {"id": 1, "text": 'Zoë "q" \\ \n\x01🎉', "flag": True, "money": Decimal("-0.50")},
    {"id": 2, "tiny": Decimal("1E-20"), "real": 1e300, "single": 0.1, "day": date(1999, 12, 31)},
    {"id": 3, "real": float("nan"), "at": MOMENT, "local": datetime(1, 1, 1)},
    {"id": 4, "real": -0.0, "bytes": b"\x00\xff", "list": [1, None], "object": {"a": None}},
    {"id": 5, "real": 5.0, "list": [], "object": {"a": "ü", "at": MOMENT}},
    {"id": 6, "real": float("-inf"), "text": "", "day": "2026-02-28", "money": "12.5"},
]


class Everything(RowSource):
    """Values of every type that threads read."""

    def columns(self) -> pa.Schema:
        return ARROW

    def rows(self, request: Request) -> Any:
        yield from ALL


class Counted(RowSource):
    """A million rows at most, of which `options` say how many, in Arrow batches."""

    def columns(self) -> dict[str, str]:
        return {"id": "bigint", "at": "timestamp"}

    def rows(self, request: Request) -> Any:
        self.request = request
        for start in range(0, int(self.stream.options["rows"]), 400):
            ids = pa.array(range(start, start + 400), pa.int32())
            at = pa.array(
                [MOMENT + timedelta(days=n.as_py()) for n in ids], pa.timestamp("s", "UTC")
            )
            yield pa.table({"at": at, "id": ids, "other": ids})


def messages(config: TapConfig, engine: Engine, folder: Path, state: Any = None) -> list[Any]:
    """Return the messages of a run of one stream."""
    catalog = discovered_catalog(engine, config)
    path = folder / "out"
    with path.open("wb") as file, Spool(config.spool) as spool:
        output = LineOutput(MessageOutput(file.fileno()))
        run = Run(engine, output, lambda: spool, config.batch)
        (plan,) = plan_streams(config, catalog, state, 1)
        sync_stream(run, plan, StateWriter(state or {}, output.write, 1e9))
        output.close()
    return [json.loads(line) for line in path.read_text().splitlines()]


def config(kind: type[RowSource], **settings: Any) -> TapConfig:
    item = {"name": "s", "format": f"{__name__}.{kind.__name__}", **settings}
    return tap_config({"streams": [item]})


def records(actual: list[Any]) -> list[Any]:
    return sorted((m["record"] for m in actual if m["type"] == "RECORD"), key=lambda row: row["id"])


@pytest.mark.spark
@pytest.mark.parametrize("settings", [{}, {"replication_key": "id", "end_date": 5}])
def test_threads_and_spark_send_the_same(
    spark: Any, tmp_path: Path, settings: dict[str, Any]
) -> None:
    mine = messages(config(Everything, **settings), threads(), tmp_path)
    theirs = messages(config(Everything, **settings), Engine.of(lambda: spark), tmp_path)
    assert records(mine) == records(theirs)
    assert [m["type"] for m in mine] == [m["type"] for m in theirs if "progress" not in str(m)]
    assert mine[0] == theirs[0]
    assert mine[-1] == theirs[-1]
    assert len(records(mine)) == (4 if settings else 6)


def test_a_bookmark_bounds_the_next_run(tmp_path: Path) -> None:
    settings = {"options": {"rows": "1000"}, "replication_key": "at"}
    first = messages(config(Counted, **settings), threads(), tmp_path)
    assert len(records(first)) == 1200
    state = first[-1]["value"]
    last = (MOMENT + timedelta(days=1199)).replace(microsecond=0).isoformat(timespec="microseconds")
    assert state["bookmarks"]["s"]["replication_key_value"] == last
    again = messages(config(Counted, **settings), threads(), tmp_path, state)
    assert [row["id"] for row in records(again)] == [1199]
    assert again[-1]["value"] == state


def test_the_request_names_what_is_wanted() -> None:
    item = {"name": "s", "format": f"{__name__}.Counted", "replication_key": "at"}
    item |= {"options": {"rows": "1"}}
    request = Request.of(plan_of(tap_config({"streams": [item], "start_date": "2026-01-01"})))
    assert request.columns == ("id", "at")
    assert (request.replication_key, request.end_value) == ("at", None)
    assert str(request.start_value).startswith("2026-01-01T00:00:00")


def plan_of(tap: TapConfig) -> Any:
    (plan,) = plan_streams(tap, discovered_catalog(threads(), tap), None, 1)
    return plan


def test_batch_files_need_no_spark(tmp_path: Path) -> None:
    storage = {"encoding": {"format": "parquet"}, "storage": {"root": str(tmp_path / "batches")}}
    item = {"name": "s", "format": f"{__name__}.Counted", "options": {"rows": "1000"}}
    item |= {"replication_key": "id", "end_date": 900}
    actual = messages(tap_config({"streams": [item], "batch_config": storage}), threads(), tmp_path)
    files = [url.removeprefix("file://") for m in actual for url in m.get("manifest", ())]
    ids = [n for file in files for n in pa.parquet.read_table(file)["id"].to_pylist()]
    assert ids == list(range(900))
    assert actual[-1]["value"]["bookmarks"]["s"]["replication_key_value"] == 899


def test_a_test_reads_one_row_without_spark(tmp_path: Path) -> None:
    item = {"name": "s", "format": f"{__name__}.Counted", "options": {"rows": "900"}}
    tap = tap_config({"streams": [{**item, "replication_key": "at"}], "engine": "threads"})
    path = tmp_path / "out"
    with path.open("wb") as file:
        run_test(tap, "all", None, MessageOutput(file.fileno()))
    actual = [json.loads(line) for line in path.read_text().splitlines()]
    assert [m["type"] for m in actual] == ["SCHEMA", "RECORD"]


def test_more_than_the_limit_is_read_by_spark() -> None:
    class Large(Counted):
        def size(self, request: Request) -> int:
            assert request.columns == ("id", "at")
            return 1 << 40

    source, engine = Large(stream("a.B", options={"rows": "1"})), threads()
    plan = plan_of(config(Counted, options={"rows": "1"}))
    from engines import IdleSpark

    engine = threads(IdleSpark())
    from tap_spark.state.stream_plans import RowForm

    assert source.read_on_driver(plan, RowForm.RECORDS, engine) is None
    assert engine.used.get("s") == ("spark", "1048576 of 256 MiB")


BROKEN = {
    "raises": ('yield {"id": 1 // 0}', "the source's own code failed: ZeroDivisionError", 10),
    "a type": ('yield {"id": "x"}', "column 'id' is not int64: ", None),
    "a column": ('yield {"id": 1, "b": 2}', "rows() has a column that columns() lacks: 'b'", None),
    "no row": ("yield 5", "rows() yields no dictionary but a value of int", None),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("engine", ["threads", pytest.param("spark", marks=pytest.mark.spark)])
def test_errors_are_one_line(
    case: str, engine: str, tmp_path: Path, monkeypatch: Any, request: pytest.FixtureRequest
) -> None:
    body, text, line = BROKEN[case]
    module = f"broken_{case.replace(' ', '_')}_{engine}"
    source = f"""
        from tap_spark.sources.row_source import RowSource


        class Broken(RowSource):
            def columns(self):
                return {{"id": "bigint"}}

            def rows(self, request):
                {body}
    """
    (tmp_path / f"{module}.py").write_text(textwrap.dedent(source).lstrip("\n"))
    monkeypatch.syspath_prepend(str(tmp_path))
    tap = tap_config({"streams": [{"name": "s", "format": f"{module}.Broken"}]})
    if engine == "threads":
        used = threads()
    else:
        session = request.getfixturevalue("spark")
        used = Engine.of(lambda: session)
    from tap_spark.send.sync import explained

    with pytest.raises(SourceError) as caught, explained("s"):
        messages(tap, used, tmp_path)
    assert text in str(caught.value)
    assert "stream 's'" in str(caught.value)
    if line is not None:
        assert f"{module}.py', line {line - 1}" in str(caught.value)


def one(kind: str | pa.DataType, value: Any) -> list[Any]:
    """Return what a source makes of a value, or of an Arrow table, in a column `a`."""

    class One(RowSource):
        def columns(self) -> Any:
            return {"a": kind} if isinstance(kind, str) else pa.schema([("a", kind)])

        def rows(self, request: Request) -> Any:
            yield value if isinstance(value, pa.Table) else {"a": value}

    batches = One(stream("a.B")).batches(Request(("a",)))
    return [row["a"] for batch in batches for row in batch.to_pylist()]


NOON = datetime(2020, 1, 1, 12)
STRUCT = pa.struct([("x", pa.int64()), ("day", pa.date32())])
PRECISE = Decimal("0.1234567890123456789")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bigint", 1.5), ("bigint", "0x10"), ("date", NOON), ("double", "1e400"),
        ("double", PRECISE), (pa.float32(), 1e300), (pa.list_(pa.date32()), [NOON]),
        (STRUCT, {"x": 1, "q": 5}), (STRUCT, {"x": 1, "day": NOON}),
        (pa.map_(pa.string(), pa.int64()), {"k": 1.5}),
        ("date", pa.table({"a": [NOON]})), ("boolean", pa.table({"a": [7]})),
        ("double", pa.table({"a": [PRECISE]})), (pa.float32(), pa.table({"a": [1e300]})),
        (pa.list_(pa.date32()), pa.table({"a": [[NOON]]})),
        (STRUCT, pa.table({"a": [{"x": 1, "q": 5}]})),
        ("bigint", pa.table([[1], [2]], names=["a", "a"])), ("bigint", pa.table({"A": [1]})),
    ],
)  # fmt: skip
def test_values_and_columns_that_would_change(kind: str | pa.DataType, value: Any) -> None:
    with pytest.raises(RuntimeError, match=r"would be|'[aA]'|\b[aA]\b"):
        one(kind, value)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("bigint", 1.0, 1), ("date", datetime(2020, 1, 1), date(2020, 1, 1)),
        ("timestamp", NOON, NOON.replace(tzinfo=UTC)), ("double", "Infinity", float("inf")),
        (pa.float32(), 0.5, 0.5), (STRUCT, {"x": 1}, {"x": 1, "day": None}),
        (pa.map_(pa.string(), pa.int64()), {"k": 1}, [("k", 1)]), (pa.binary(), "ab", b"ab"),
        (pa.list_(pa.int64()), (1, 2), [1, 2]), (STRUCT, (1, None), {"x": 1, "day": None}),
        (STRUCT, pa.table({"a": [{"x": None}]}), {"x": None, "day": None}),
        (pa.list_(pa.int64()), pa.table({"a": [[None]]}), [None]),
        ("string", pa.table({"a": pa.array([time(1)])}), "01:00:00.000000"),
        ("bigint", pa.table({"a": pa.array(["007"], pa.string_view())}), 7),
        (pa.uint64(), 2**64 - 1, Decimal(2**64 - 1)),
        (pa.float16(), 1.5, 1.5), (pa.date64(), date(2020, 1, 1), date(2020, 1, 1)),
        (pa.string_view(), "x", "x"), (pa.uint8(), pa.table({"a": pa.array([7], pa.uint8())}), 7),
        ("string", pa.table({"a": pa.array(["x"]).dictionary_encode()}), "x"),
        (pa.list_(pa.int32()), pa.table({"a": pa.array([[1]], pa.large_list(pa.int64()))}), [1]),
        (pa.float32(), pa.table({"a": [float("nan")]}).slice(1), None),
    ],
)  # fmt: skip
def test_values_in_other_types(kind: str | pa.DataType, value: Any, expected: Any) -> None:
    assert one(kind, value) == ([] if expected is None else [expected])


@pytest.mark.parametrize("kind", [pa.decimal256(50, 2), pa.run_end_encoded(pa.int32(), pa.int8())])
def test_types_that_spark_lacks(kind: pa.DataType) -> None:
    with pytest.raises(SourceError, match=r"columns\(\): 'a' has the type"):
        one(kind, None)


@pytest.mark.parametrize(
    ("columns", "text"),
    [({"id": "variant"}, "'id' has the type 'variant'"), ({}, "the source has no columns")],
)
def test_columns_are_checked(columns: dict[str, str], text: str) -> None:
    class Odd(Counted):
        def columns(self) -> dict[str, str]:
            return columns

    with pytest.raises(SourceError, match=text):
        Odd(stream("a.B")).schema(None)


def test_the_sample_reads_sqlite(tmp_path: Path, monkeypatch: Any) -> None:
    shutil.copy(SAMPLE / "sqlite_source.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    with closing(sqlite3.connect("shop.db")) as database, database:
        database.execute("CREATE TABLE orders (id INTEGER, name TEXT, day DATE, raw BLOB)")
        # SQLite takes a text for a BLOB, too.
        rows = [(1, "Zoë", "2026-01-02", b"\xff\0"), (2, None, None, "text")]
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", rows)
    item = {"name": "orders", "format": "sqlite_source.SqliteSource", "replication_key": "id"}
    item |= {"options": {"database": "shop.db", "table": "orders"}, "key_properties": ["id"]}
    tap = tap_config({"streams": [item]})
    actual = messages(tap, threads(), tmp_path)
    assert records(actual) == [
        {"id": 1, "name": "Zoë", "day": "2026-01-02", "raw": "/wA="},
        {"id": 2, "name": None, "day": None, "raw": "dGV4dA=="},
    ]  # fmt: skip
    again = messages(tap, threads(), tmp_path, actual[-1]["value"])
    assert [row["id"] for row in records(again)] == [2]
    missing = replace(tap.streams[0], options={"database": "no.db", "table": "orders"})
    with pytest.raises(SourceError, match="unable to open database file"):
        source_for(missing).schema(None)  # type: ignore[arg-type]
