"""BATCH messages by Spark: every encoding read back, exact sizes, order, clean ends."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from case_matrix import matrix
from written_rows import RowsWritten, total

from shared.errors import ClosedPipeError, DestinationError
from shared.formats.file_formats import FORMATS
from shared.formats.json_lines import LineReader
from shared.formats.json_schema import spark_to_json_schema
from shared.formats.typed_rows import RowReader
from shared.settings.batch_settings import BatchConfig
from shared.singer.stdout import MessageOutput
from shared.storage.files import codec_of
from tap_spark.config import SpoolSettings
from tap_spark.send import batch_tasks
from tap_spark.send.batch_plan import BatchStagingFolder, WrittenFile
from tap_spark.send.batch_writer import BatchWriter, written_files
from tap_spark.send.line_output import ChunkInfo, LineOutput
from tap_spark.send.record_writer import write_records
from tap_spark.send.spool import Spool
from tap_spark.state.stream_plans import Method, Resume, Slice, StreamPlan
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ENCODINGS = {
    "jsonl": ("none", "gzip", "zstd", "bzip2"),
    "parquet": ("none", "snappy", "gzip", "zstd", "lz4"),
    "csv": ("none", "gzip", "zstd", "bzip2"),
    "avro": ("none", "deflate", "snappy", "zstd"),
    "arrow": ("none", "lz4", "zstd"),
}
PAIRS = [(form, codec) for form, codecs in ENCODINGS.items() for codec in codecs]
AWKWARD = (
    "id",
    "cast(id as tinyint) as tiny",
    "if(id % 3 = 0, null, concat('ü\"\\n,;\\'', id)) as text",
    "if(id % 2 = 0, '', null) as empty",
    "cast(id as decimal(38,18)) / 7 as exact",
    "cast(id as decimal(10,2)) as money",
    "element_at(array(double('NaN'), double('infinity'), double('-infinity'), 0.1D), "
    "cast(id % 4 as int) + 1) as odd",
    "cast(concat('x', id) as binary) as raw",
    "date_add(date'0001-01-01', cast(id as int)) as day",
    "timestamp_micros(id * 1000001 - 5) as moment",
    "timestamp_ntz'2020-01-01 00:00:00' + id * interval '1' second as clock",
    "id * interval '1 02:03:04.5' day to second as spell",
    "parse_json(concat('{\"a\":[', id, ',null]}')) as free",
    "named_struct('a b', id, 'inner', array(named_struct('x', cast(id as string)))) as deep",
    "map(cast(id as string), id) as pairs",
    "id % 2 = 0 as flag",
)


def plan_of(frame: DataFrame, key: str | None, version: int | None) -> StreamPlan:
    return StreamPlan(
        stream="or/ders",
        tap_stream_id="id",
        config=StreamConfig(name="id", format="rows"),
        schema=spark_to_json_schema(frame.schema),
        columns=tuple(frame.columns),
        method=Method.FULL_TABLE if key is None else Method.INCREMENTAL,
        resume=Resume.NOTHING if key is None else Resume.REPLICATION_KEY,
        replication_key=key,
        version=version,
    )


@dataclass
class Bench:
    """A pipe with a reader, a spool and a root."""

    spark: SparkSession
    path: Path
    got: list[bytes] = field(default_factory=list)
    chunks: list[ChunkInfo] = field(default_factory=list)
    shares_disk: bool = True
    on_chunk: Callable[[ChunkInfo], None] | None = None
    url: str | None = None
    bookmark: dict[str, Any] | None = None
    later: list[Slice] = field(default_factory=list)
    settled: list[tuple[Any, int]] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.path / "root"

    def config(self, form: str, codec: str, rows: int | None) -> BatchConfig:
        return BatchConfig(form, codec, self.url or str(self.root), "pre/", batch_size=rows)

    def write(
        self,
        frame: DataFrame,
        form: str = "parquet",
        codec: str = "snappy",
        rows: int | None = None,
        *,
        key: str | None = None,
        ordered: bool = False,
        version: int | None = None,
        batch: bool = True,
    ) -> RowsWritten:
        plan = plan_of(frame, key, version)
        piece = Slice(frame, bookmark=self.bookmark, ordered=ordered)
        reported: list[ChunkInfo] = []

        def on_chunk(chunk: ChunkInfo) -> None:
            reported.append(chunk)
            (self.on_chunk or self.chunks.append)(chunk)

        with (
            closing(Pipe(self)) as pipe,
            Spool(SpoolSettings(root=str(self.path / "spool"))) as spool,
        ):
            if not batch:
                write_records(self.spark, plan, piece, pipe.output, spool=spool, on_chunk=on_chunk)
                return total(reported)
            with (
                BatchStagingFolder(str(self.root), "pre/") as place,
                BatchWriter(
                    lambda: self.spark,
                    plan,
                    pipe.output,
                    batch=self.config(form, codec, rows),
                    spool=spool if self.shares_disk else None,
                    staging=place if self.shares_disk and self.url is None else None,
                ) as files,
            ):
                for one in (piece, *self.later):
                    self.settled.append((files.write(one, on_chunk), files.rows))
                self.settled.append((files.finish(), files.rows))
            return total(reported)

    def read(self, source: int) -> None:
        while part := os.read(source, 1 << 16):
            self.got.append(part)

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in b"".join(self.got).splitlines()]

    @property
    def urls(self) -> list[str]:
        return [url for message in self.messages for url in message["manifest"]]

    @property
    def files(self) -> set[str]:
        actual = self.root.rglob("*") if self.root.is_dir() else ()
        return {f"file://{path}" for path in actual if path.is_file()}


class Pipe:
    """Standard output, read into what a bench got."""

    def __init__(self, bench: Bench) -> None:
        self._source, self._sink = os.pipe()
        self._reader = threading.Thread(target=bench.read, args=(self._source,), daemon=True)
        self._reader.start()
        self.output = LineOutput(MessageOutput(self._sink))

    def close(self) -> None:
        self.output.close()
        os.close(self._sink)
        self._reader.join(30)
        os.close(self._source)


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(spark, tmp_path)
    yield bench
    assert not list((tmp_path / "spool").iterdir())


def rows_of(url: str, form: str, schema: dict[str, Any]) -> list[dict[str, Any]]:
    tables = FORMATS[form].read(url)
    if FORMATS[form].rows == "lines":
        reader = LineReader(schema, envelope=False, strict=True)
        read = [reader.read(value.as_py()) for t in tables for value in t.column(0)]
    else:
        typed = RowReader(schema, strict=True, texts=form == "csv")
        read = [typed.read(table) for table in tables]
    assert [one.rejects for one in read] == [()] * len(read)
    return [row for one in read for row in one.table.to_pylist()]


def ids(url: str, form: str = "parquet") -> list[int]:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    return [row["id"] for row in rows_of(url, form, schema)]


@pytest.fixture(scope="module")
def awkward(spark: SparkSession) -> DataFrame:
    return spark.range(0, 100, 1, 3).selectExpr(*AWKWARD)


@pytest.fixture(scope="module")
def as_records(
    awkward: DataFrame, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """The rows as in RECORD messages."""
    bench = Bench(spark, tmp_path_factory.mktemp("records"))
    bench.write(awkward, batch=False)
    schema = spark_to_json_schema(awkward.schema)
    read = LineReader(schema, envelope=True, strict=True).read(b"".join(bench.got))
    assert read.rejects == ()
    return sorted(map(repr, read.table.to_pylist()))


@pytest.mark.parametrize(("form", "codec"), PAIRS)
def test_files_hold_what_records_would(
    bench: Bench, awkward: DataFrame, as_records: list[str], form: str, codec: str
) -> None:
    if form == "avro":
        pytest.importorskip("fastavro")
    size = 30 if PAIRS.index((form, codec)) % 2 else None
    written = bench.write(awkward, form, codec, size, version=7)
    assert written == RowsWritten(100)
    assert bench.messages[0] == {
        "type": "BATCH",
        "stream": "or/ders",
        "encoding": {"format": form, "compression": codec},
        "manifest": [bench.urls[0]],
        "version": 7,
    }
    assert bench.files == set(bench.urls)
    extension = FORMATS[form].extension(codec)
    for url in bench.urls:
        assert url.startswith(f"file://{bench.root}/pre/tap-spark--or_ders-")
        assert url.endswith(extension)
    if form in ("jsonl", "csv"):
        expected = {"none": None, "bzip2": "bz2"}.get(codec, codec)
        assert {codec_of(url) for url in bench.urls} == {expected}
    schema = spark_to_json_schema(awkward.schema)
    read = [rows_of(url, form, schema) for url in bench.urls]
    assert sorted(repr(row) for rows in read for row in rows) == as_records
    if size:
        assert [len(rows) for rows in read] == [30, 30, 30, 10]


@pytest.mark.parametrize("shares_disk", [True, False])
@pytest.mark.parametrize(
    ("rows", "parts", "size", "files"),
    [
        (100, 7, 30, [30, 30, 30, 10]),
        (100, 1, 100, [100]),
        (100, 5, 1000, [100]),
        (60, 4, 10, [10] * 6),
        (0, 1, 10, []),
    ],
)
def test_sizes_are_exact(
    bench: Bench, rows: int, parts: int, size: int, files: list[int], shares_disk: bool
) -> None:
    bench.shares_disk = shares_disk
    written = bench.write(bench.spark.range(0, rows, 1, parts), rows=size)
    assert written.rows == rows
    actual = [ids(url) for url in bench.urls]
    assert [len(part) for part in actual] == files
    assert sorted(n for part in actual for n in part) == list(range(rows))
    assert [chunk.rows for chunk in bench.chunks if chunk.rows] == files
    assert bench.files == set(bench.urls)


@pytest.mark.parametrize(
    ("slices", "shares_disk"),
    matrix(
        [
            # Nothing left over by the second slice; some by the others.
            ([23, 7, 0, 38], [(None, 20), (2, 30), (3, 30), (None, 60), (4, 68)]),
            # Slices that are smaller than a file.
            ([3, 3, 3, 3], [(None, 0), (None, 0), (None, 0), (3, 10), (4, 12)]),
            ([10, 0, 5], [(1, 10), (2, 10), (None, 10), (3, 15)]),
        ],
        [True, False],
    ),
)
def test_sizes_are_exact_over_all_slices(
    bench: Bench, slices: tuple[list[int], list[Any]], shares_disk: bool
) -> None:
    counts, settled = slices
    bench.shares_disk = shares_disk
    ends = [sum(counts[: n + 1]) for n in range(len(counts))]
    pieces = [
        Slice(bench.spark.range(end - count, end, 1, 2), bookmark={"n": n})
        for n, (count, end) in enumerate(zip(counts, ends, strict=True), start=1)
    ]
    bench.later, bench.bookmark = pieces[1:], {"n": 1}
    written = bench.write(pieces[0].frame, rows=10)
    assert written.rows == ends[-1]
    actual = [ids(url) for url in bench.urls]
    assert [len(part) for part in actual[:-1]] == [10] * (len(actual) - 1)
    assert sorted(n for part in actual for n in part) == list(range(ends[-1]))
    assert bench.files == set(bench.urls)
    # A bookmark is written once all its rows have been announced, and not before.
    assert [(b and b["n"], rows) for b, rows in bench.settled] == settled
    announced = [0]
    for size in map(len, actual):
        announced.append(announced[-1] + size)
    for bookmark, rows in bench.settled:
        if bookmark is not None:
            seen = {n for part in actual[: announced.index(rows)] for n in part}
            assert seen >= set(range(ends[bookmark["n"] - 1]))


@pytest.mark.parametrize("shares_disk", [True, False])
@pytest.mark.parametrize("key", ["id", None])
def test_ordered_slices_keep_their_order_and_exact_sizes(
    bench: Bench, key: str | None, shares_disk: bool
) -> None:
    bench.shares_disk = shares_disk
    ends = [0, 15, 15, 17, 42]
    pieces = [
        Slice(bench.spark.range(start, stop, 1, 2), bookmark={"n": n}, ordered=True)
        for n, (start, stop) in enumerate(pairwise(ends), start=1)
    ]
    bench.later, bench.bookmark = pieces[1:], {"n": 1}
    bench.write(pieces[0].frame, rows=10, key=key, ordered=True)
    assert [ids(url) for url in bench.urls] == [
        list(range(start, min(start + 10, 42))) for start in range(0, 50, 10)
    ]
    assert [(b and b["n"], rows) for b, rows in bench.settled] == [
        (None, 10), (None, 10), (None, 10), (3, 40), (4, 42),
    ]  # fmt: skip
    keys = [chunk.key.value for chunk in bench.chunks if chunk.key]
    assert keys == ([9, 19, 29, 39, 41] if key else [])
    assert bench.files == set(bench.urls)


def test_what_earlier_slices_left_over_survives_a_failure(bench: Bench) -> None:
    bad = bench.spark.range(15, 30, 1, 1).selectExpr("if(id = 29, raise_error('bad row'), id) id")
    with (
        Spool(SpoolSettings(root=str(bench.path / "spool"))) as spool,
        BatchStagingFolder(str(bench.root), "pre/") as place,
        closing(Pipe(bench)) as pipe,
        BatchWriter(
            lambda: bench.spark,
            plan_of(bad, None, None),
            pipe.output,
            batch=bench.config("parquet", "snappy", 10),
            spool=spool,
            staging=place,
        ) as files,
    ):
        good = Slice(bench.spark.range(0, 15), bookmark={"n": 1})
        assert files.write(good, bench.chunks.append) is None
        with pytest.raises(Exception, match="bad row"):
            files.write(Slice(bad, bookmark={"n": 2}), bench.chunks.append)
        assert files.finish() == {"n": 1}
        assert files.finish() is None
    actual = [ids(url) for url in bench.urls]
    assert {n for part in actual for n in part} >= set(range(15))
    assert bench.files == set(bench.urls)


@pytest.mark.parametrize("shares_disk", [True, False])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("size", [None, 30])
def test_an_ordered_slice_keeps_its_order(
    bench: Bench, form: str, size: int | None, shares_disk: bool
) -> None:
    bench.shares_disk = shares_disk
    frame = bench.spark.range(0, 100, 1, 4)
    codec = "zstd"
    written = bench.write(frame, form, codec, size, key="id", ordered=True)
    assert written.key.value == 99
    actual = [ids(url, form) for url in bench.urls]
    assert [n for part in actual for n in part] == list(range(100))
    keys = [chunk.key.value for chunk in bench.chunks if chunk.key]
    assert keys == ([29, 59, 89, 99] if size else [24, 49, 74, 99])


@pytest.mark.parametrize("size", [None, 7])
def test_the_greatest_key_of_an_unordered_slice(bench: Bench, size: int | None) -> None:
    frame = bench.spark.range(0, 50, 1, 3).selectExpr(
        "id", "timestamp_micros(-id) as `a.key`", "id as a"
    )
    written = bench.write(frame, rows=size, key="a.key")
    assert written.key.value == "1970-01-01T00:00:00.000000+00:00"


@pytest.mark.parametrize("size", [None, 300])
@pytest.mark.parametrize("shares_disk", [True, False])
def test_text_that_is_not_utf8_is_told(
    bench: Bench, caplog: pytest.LogCaptureFixture, size: int | None, shares_disk: bool
) -> None:
    bench.shares_disk = shares_disk
    text = "cast(if(id % 10 = 0, unhex('61FF'), encode(id, 'UTF-8')) as string)"
    frame = bench.spark.range(0, 2000, 1, 3).selectExpr("id", f"{text} as t", "'ü' as u")
    assert bench.write(frame, "jsonl", "none", size, key="id").rows == 2000
    lines = [line for url in bench.urls for line in Path(url[7:]).read_text().splitlines()]
    assert sum(json.loads(line)["t"] == "a\ufffd" for line in lines) == 200
    [line] = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "column 't': 200 rows have text that is not UTF-8" in line


def test_the_replication_key_is_not_a_separate_column(bench: Bench) -> None:
    bench.write(bench.spark.range(5).selectExpr("id", "id as k"), key="k")
    (table, *_) = FORMATS["parquet"].read(bench.urls[0])
    assert table.column_names == ["id", "k"]


def test_files_by_bytes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_tasks.BatchTask.__init__, "__defaults__", (None, 50_000, ()))
    frame = bench.spark.range(0, 30_000, 1, 1).selectExpr("id", "repeat('x', 40) as x")
    assert bench.write(frame).rows == 30_000
    assert len(bench.urls) > 1
    assert [n for url in bench.urls for n in ids(url)] == list(range(30_000))


def test_files_that_were_not_announced_are_removed(bench: Bench) -> None:
    frame = bench.spark.range(0, 100, 1, 1).selectExpr(
        "if(id = 99, raise_error('bad row'), id) as id"
    )
    with pytest.raises(Exception, match="bad row"):
        bench.write(frame, rows=10)
    assert bench.files == set(bench.urls)


@pytest.mark.parametrize("size", [None, 10])
def test_an_interrupted_slice_leaves_announced_files_only(bench: Bench, size: int | None) -> None:
    def stop(_: ChunkInfo) -> None:
        raise KeyboardInterrupt

    bench.on_chunk = stop
    frame = bench.spark.range(0, 100_000, 1, 200).selectExpr("id", "repeat('x', 2000) as x")
    with pytest.raises(KeyboardInterrupt):
        bench.write(frame, rows=size)
    assert len(bench.urls) == 1
    assert bench.files == set(bench.urls)


def test_a_reader_that_closes_the_pipe(spark: SparkSession, tmp_path: Path) -> None:
    source, sink = os.pipe()
    os.close(source)
    output = LineOutput(MessageOutput(sink))
    bench = Bench(spark, tmp_path)
    frame = spark.range(0, 100, 1, 2)
    with (
        Spool(SpoolSettings(root=str(tmp_path / "spool"))) as spool,
        pytest.raises(ClosedPipeError),
        BatchStagingFolder(str(bench.root), "pre/") as place,
        BatchWriter(
            lambda: spark,
            plan_of(frame, None, None),
            output,
            batch=bench.config("parquet", "snappy", 10),
            spool=spool,
            staging=place,
        ) as files,
    ):
        files.write(Slice(frame), bench.chunks.append)
    output.close()
    os.close(sink)
    # The one whose message may have reached the reader.
    assert len(bench.files) == 1


def test_other_files_in_the_root_stay(bench: Bench) -> None:
    other = bench.root / "pre" / "tap-spark--or_ders-other-1.parquet"
    other.parent.mkdir(parents=True)
    other.write_text("x")
    bench.shares_disk = False
    bench.write(bench.spark.range(5), rows=2)
    assert bench.files == {*bench.urls, f"file://{other}"}


def test_a_root_that_cannot_be_written_is_one_clear_error(bench: Bench) -> None:
    bench.root.write_text("a file")
    with pytest.raises(
        DestinationError, match=r"storage\.root.*cannot write batch files"
    ) as caught:
        bench.write(bench.spark.range(10), rows=3)
    assert caught.value.exit_code == 6
    assert "Traceback" not in str(caught.value)


def test_a_url_unknown_to_fsspec_is_one_clear_error(bench: Bench) -> None:
    bench.url = "nonsense://bucket"
    with pytest.raises(DestinationError, match=r"nonsense://bucket.*nonsense"):
        bench.write(bench.spark.range(10))


def _late(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Report a file, the later the greater the number of the partition."""
    for _ in batches:
        pass
    partition, task = batch_tasks.task_identity()
    time.sleep(partition)
    written = WrittenFile(f"file {partition}", 1, 1)
    yield batch_tasks.Reporter(None).report(partition, task, 1, written, None)


def test_files_of_a_cluster_are_known_before_the_job_ends(spark: SparkSession) -> None:
    frame = spark.range(0, 4, 1, numPartitions=4)
    actual, times = [], []
    for note, _ in written_files(spark, frame, lambda _: _late, None, ordered=False):
        actual.append(note.url)
        times.append(time.monotonic())
    assert sorted(actual) == [f"file {number}" for number in range(4)]
    assert times[-1] - times[0] > 1
