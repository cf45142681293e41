"""RECORD lines by Spark through both transports: the same lines, keys, bounds and clean ends."""

from __future__ import annotations

import json
import os
import re
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from case_matrix import matrix
from written_rows import RowsWritten, total

from shared.errors import ClosedPipeError, DestinationError
from shared.formats.record_text import record_json
from shared.singer.stdout import MessageOutput
from shared.spark.conf import WAITING
from tap_spark.config import SpoolSettings
from tap_spark.send import record_writer
from tap_spark.send.line_output import ChunkInfo, LineOutput
from tap_spark.send.record_writer import write_records
from tap_spark.send.spool import Spool
from tap_spark.state.stream_plans import Method, Resume, Slice, StreamPlan
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
TRANSPORTS = ("spool", "fetch")


def plan_of(frame: DataFrame, key: str | None = None, version: int | None = None) -> StreamPlan:
    return StreamPlan(
        stream='na"me',
        tap_stream_id="id",
        config=StreamConfig(name="id", format="rows"),
        schema={"type": "object", "properties": {}},
        columns=tuple(frame.columns),
        method=Method.FULL_TABLE if key is None else Method.INCREMENTAL,
        resume=Resume.NOTHING if key is None else Resume.REPLICATION_KEY,
        replication_key=key,
        version=version,
    )


@dataclass
class Bench:
    """A pipe with a reader, a spool, and what a slice came to."""

    spark: SparkSession
    root: Path
    room: int = 64 * 1024 * 1024
    reader_waits: float = 0.0
    got: list[bytes] = field(default_factory=list)
    chunks: list[ChunkInfo] = field(default_factory=list)
    peak: int = 0

    def read(self, source: int, spool: Spool) -> None:
        while part := os.read(source, 1 << 16):
            self.got.append(part)
            self.peak = max(self.peak, sum(living_sizes(spool.path)))
            time.sleep(self.reader_waits)

    def write(
        self, frame: DataFrame, transport: str, key: str | None = None, **more: Any
    ) -> RowsWritten:
        source, sink = os.pipe()
        ordered = more.pop("ordered", False)
        with Spool(SpoolSettings(root=str(self.root), bytes=self.room)) as spool:
            reader = threading.Thread(target=self.read, args=(source, spool), daemon=True)
            reader.start()
            output = LineOutput(MessageOutput(sink))
            try:
                rows = write_records(
                    self.spark,
                    plan_of(frame, key, **more),
                    Slice(frame, ordered=ordered),
                    output,
                    spool=spool if transport == "spool" else None,
                    on_chunk=self.chunks.append,
                )
            finally:
                output.close()
                os.close(sink)
                reader.join(30)
                os.close(source)
        assert rows == total(self.chunks).rows
        return total(self.chunks)

    @property
    def lines(self) -> list[str]:
        return b"".join(self.got).decode().splitlines(keepends=True)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line)["record"] for line in self.lines]


def living_sizes(folder: Path) -> Iterator[int]:
    for parent, _, names in os.walk(folder):  # ignores folders that are removed during the walk
        for name in names:
            if name.endswith(".lines"):
                with suppress(FileNotFoundError):  # copied during the walk
                    yield os.stat(os.path.join(parent, name)).st_size


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    yield Bench(spark, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_lines_have_the_form_that_the_target_expects(bench: Bench, transport: str) -> None:
    started = datetime.now(timezone.utc)
    written = bench.write(bench.spark.range(3).repartition(1), transport, version=7)
    assert written == RowsWritten(3)
    times = {json.loads(line)["time_extracted"] for line in bench.lines}
    (moment,) = times
    assert started <= datetime.fromisoformat(moment) <= datetime.now(timezone.utc)
    assert sorted(bench.lines) == [
        f'{{"type":"RECORD","stream":"na\\"me","record":{{"id":{number}}},'
        f'"time_extracted":"{moment}","version":7}}\n'
        for number in range(3)
    ]


def test_both_transports_give_the_same_records(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 5000, 1, 7).selectExpr(
        "id",
        "concat('ü\"\\n', id) as text",
        "cast(id as decimal(30,3)) / 7 as exact",
        "if(id % 3 = 0, null, timestamp_millis(id)) as moment",
    )
    actual = []
    for transport in TRANSPORTS:
        bench = Bench(spark, tmp_path)
        written = bench.write(frame, transport, "moment")
        assert written.rows == 5000
        assert sum(chunk.rows for chunk in bench.chunks) == 5000
        assert sum(chunk.size for chunk in bench.chunks) == len(b"".join(bench.got))
        actual.append((Counter(map(repr, bench.records)), written.key))
    assert actual[0] == actual[1]
    assert actual[0][1] is not None
    assert actual[0][1].value == "1970-01-01T00:00:04.999000+00:00"


@pytest.mark.parametrize("ordered", [False, True])
def test_text_that_is_not_utf8_is_told(
    bench: Bench, transport: str, caplog: pytest.LogCaptureFixture, ordered: bool
) -> None:
    text = "cast(if(id % 10 = 0, unhex('61FF'), encode(id, 'UTF-8')) as string)"
    frame = bench.spark.range(0, 2000, 1, 3).selectExpr("id", f"{text} as t", "'ü' as u")
    assert bench.write(frame, transport, "id", ordered=ordered).rows == 2000
    assert sum(record["t"] == "a\ufffd" for record in bench.records) == 200
    [line] = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert line.startswith("stream 'na\"me', column 't': 200 rows have text that is not UTF-8")


GREATEST = [
    ("id", 99),
    ("cast(id as string)", "99"),
    ("if(id < 98, cast(id as double), double('NaN'))", 97.0),
    ("if(id < 50, cast(id as float), float('infinity'))", 49.0),
    ("cast(id - 100 as decimal(20,2))", -1.0),
    ("date_add(date'2020-01-01', cast(id as int))", "2020-04-09"),
    (
        "timestamp_ntz'2020-01-01 00:00:00' + id * interval '1' second",
        "2020-01-01T00:01:39.000000",
    ),
    (
        "if(id < 50, date'9999-12-31', cast(concat('+', 20000 + id, '-01-01') as date))",
        "+20099-01-01",
    ),
    (
        "if(id < 50, timestamp'9999-12-31 23:59:59.999999', "
        "cast(concat('-', 4712 - id, '-01-01 00:00:00+00:00') as timestamp))",
        "-4613-01-01T00:00:00.000000+00:00",
    ),
    ("date'0001-01-01'", None),
    ("if(id = 5, 5, null)", 5),
    ("cast(null as bigint)", None),
]


@pytest.mark.parametrize(("case", "transport"), matrix(GREATEST, TRANSPORTS))
def test_the_greatest_key(bench: Bench, case: tuple[str, Any], transport: str) -> None:
    expression, greatest = case
    frame = bench.spark.range(0, 100, 1, 3).selectExpr("id", f"{expression} as `a.key`")
    written = bench.write(frame, transport, "a.key")
    assert written.rows == 100
    assert (written.key and written.key.value) == greatest


def test_an_empty_slice(bench: Bench, transport: str) -> None:
    assert bench.write(bench.spark.range(0), transport, "id") == RowsWritten(0)
    assert bench.lines == []
    assert bench.chunks == []


def test_empty_partitions(bench: Bench, transport: str) -> None:
    frame = bench.spark.range(0, 100, 1, 8).where("id < 2 or id > 97")
    assert bench.write(frame, transport).rows == 4
    assert sorted(row["id"] for row in bench.records) == [0, 1, 98, 99]


def test_a_row_larger_than_any_chunk(bench: Bench, transport: str) -> None:
    frame = bench.spark.range(3).selectExpr("id", "repeat('x', 20000000 * cast(id as int)) as x")
    assert bench.write(frame.repartition(1), transport, "id").key.value == 2
    assert sorted(len(row["x"]) for row in bench.records) == [0, 20_000_000, 40_000_000]


def test_an_ordered_slice_keeps_its_order(
    bench: Bench, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_writer, "FETCH_CHUNK_BYTES", 1000)
    monkeypatch.setattr(record_writer, "SPOOL_CHUNK_BYTES", 1000)
    frame = bench.spark.range(0, 3000, 1, 4).selectExpr("3000 - id as id").orderBy("id")
    written = bench.write(frame, transport, "id", ordered=True)
    assert [row["id"] for row in bench.records] == list(range(1, 3001))
    keys = [chunk.key.value for chunk in bench.chunks if chunk.key]
    assert len(keys) == len(bench.chunks) > 50
    assert keys == sorted(keys)
    assert written.key.value == 3000


def test_an_ordered_slice_of_uneven_and_empty_partitions(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_writer, "SPOOL_CHUNK_BYTES", 2000)
    bench.room = 20_000
    frame = bench.spark.range(0, 4000, 1, 9).where("id < 100 or id > 1200 and id % 444 > 5")
    written = bench.write(frame, "spool", "id", ordered=True)
    expected = [n for n in range(4000) if n < 100 or (n > 1200 and n % 444 > 5)]
    assert [row["id"] for row in bench.records] == expected
    assert written.key.value == expected[-1]


@pytest.mark.parametrize("ordered", [True, False])
def test_few_tasks_beside_those_of_the_target_write_the_same(bench: Bench, ordered: bool) -> None:
    bench.spark.conf.set(WAITING, "2")
    try:
        written = bench.write(bench.spark.range(0, 4000, 1, 9), "spool", "id", ordered=ordered)
    finally:
        bench.spark.conf.unset(WAITING)
    ids = [record["id"] for record in bench.records]
    assert (ids if ordered else sorted(ids)) == list(range(4000))
    assert written == RowsWritten(4000, written.key)
    assert written.key is not None
    assert written.key.value == 3999


def test_order_is_kept_without_a_replication_key(bench: Bench, transport: str) -> None:
    bench.write(bench.spark.range(0, 2000, 1, 5), transport, ordered=True)
    assert [record["id"] for record in bench.records] == list(range(2000))


def test_a_slow_reader_bounds_what_is_spooled(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_writer, "SPOOL_CHUNK_BYTES", 100_000)
    bench.room = 300_000
    bench.reader_waits = 0.005
    frame = bench.spark.range(0, 8000, 1, 2).selectExpr("id", "repeat('x', 1000) as x")
    assert bench.write(frame, "spool").rows == 8000
    assert len(bench.lines) == 8000
    # Two tasks may each begin a chunk at the same moment.
    assert 0 < bench.peak <= 300_000 + 2 * 150_000


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_error_in_the_data_ends_the_slice(bench: Bench, transport: str) -> None:
    frame = bench.spark.range(0, 1000, 1, 2).selectExpr(
        "if(id = 999, raise_error('bad row'), id) as id"
    )
    with pytest.raises(Exception, match="bad row"):
        bench.write(frame, transport)


def slow_frame(spark: SparkSession) -> DataFrame:
    """Return a frame of more tasks than can end in time, each of which is short."""
    return spark.range(0, 10**7, 1, 5000).selectExpr("id", "repeat('x', 2000) as x")


def nothing_runs(spark: SparkSession) -> bool:
    """Return whether the two cores are free again."""
    started = time.monotonic()
    spark.range(0, 2, 1, 2).collect()
    return time.monotonic() - started < 10


def test_an_interrupted_slice_cancels_its_job(bench: Bench, transport: str) -> None:
    def stop(_: ChunkInfo) -> None:
        raise KeyboardInterrupt

    bench.chunks = Stopping(stop)  # type: ignore[assignment]
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        bench.write(slow_frame(bench.spark), transport)
    assert time.monotonic() - started < 30
    assert nothing_runs(bench.spark)
    assert bench.lines[-1].endswith("\n")


class Stopping:
    """Looks like a list of chunks; acts on the first."""

    def __init__(self, act: Callable[[ChunkInfo], None]) -> None:
        self.append = act


def test_a_closed_pipe_cancels_the_job(spark: SparkSession, tmp_path: Path) -> None:
    source, sink = os.pipe()
    output = LineOutput(MessageOutput(sink))
    frame = slow_frame(spark)
    with Spool(SpoolSettings(root=str(tmp_path))) as spool:
        os.close(source)
        with pytest.raises(ClosedPipeError):
            write_records(
                spark, plan_of(frame), Slice(frame), output, spool=spool, on_chunk=lambda _: None
            )
        assert list(spool.path.glob("*/*")) == []
    output.close()
    os.close(sink)
    assert nothing_runs(spark)


def test_a_spool_that_vanishes_is_one_clear_error(bench: Bench) -> None:
    def remove(_: ChunkInfo) -> None:
        for folder in bench.root.glob("*/*"):
            if folder.is_dir():
                folder.rename(bench.root / "gone")

    bench.chunks = Stopping(remove)  # type: ignore[assignment]
    with pytest.raises(DestinationError, match=r"spool\.root"):
        bench.write(slow_frame(bench.spark), "spool")
    record_writer_folder = bench.root / "gone"
    for _ in range(50):  # a task may be writing its last chunk there
        for path in record_writer_folder.iterdir():
            path.unlink(missing_ok=True)
        try:
            record_writer_folder.rmdir()
            return
        except OSError:
            time.sleep(0.1)


def test_lines_hold_the_records_of_to_json(bench: Bench) -> None:
    bits = "xxhash64(id)"
    frame = bench.spark.range(0, 3000, 1, 2).selectExpr(
        "id",
        f"concat(hex({bits}), chr(cast(pmod({bits}, 128) as int)), '\"\\\\é😀') as `te\"xt`",
        "cast(X'61ff62' as string) as broken",
        f"nullif({bits} / pow(10, pmod(id, 30)), 0) as real",
        f"cast({bits} / pow(10, pmod(id, 30)) as float) as single",
        "double(array('NaN', 'Infinity', '-Infinity', '0', '-0.0', '1e7', '1e-3')[pmod(id, 7)]) d",
        f"cast(pmod({bits}, 1000000000) as decimal(20,6)) / 7 as exact",
        f"cast({bits} as decimal(38,18)) as small",
        f"timestamp_micros({bits}) as moment",
        f"cast(timestamp_micros({bits} div 10) as timestamp_ntz) as clock",
        f"date_add(date'1970-01-01', cast(pmod({bits}, 5000000) - 1000000 as int)) as day",
        f"if(pmod(id, 3) = 0, null, pmod({bits}, 2) = 0) as word",
        f"unhex(hex({bits})) as raw",
        f"array(named_struct('a', {bits}, 'b', null)) as nested",
        "null as nothing",
    )
    wanted = frame.select("id", record_json(frame.schema)).collect()
    bench.write(frame, "spool")
    head = '{"type":"RECORD","stream":"na\\"me","record":'
    actual = {json.loads(line)["record"]["id"]: line for line in bench.lines}
    assert len(actual) == len(bench.lines) == 3000
    for number, text in wanted:
        record, _, _ = actual[number].removeprefix(head).rpartition(',"time_extracted"')
        assert _with_singles(record) == _with_singles(text)
        assert _without_floats(record) == _without_floats(text)


def _with_singles(record: str) -> dict[str, Any]:
    """Read a record; Java 17 spells some floats with more digits than they need."""
    actual: dict[str, Any] = json.loads(record)
    return {**actual, "single": struct.pack("f", actual["single"])}


def _without_floats(record: str) -> str:
    return re.sub(r"-?\d+\.\d+E-?\d+", "", re.sub(r'"(real|single)":[^,]+', "", record))
