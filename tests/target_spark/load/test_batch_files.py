"""Files of BATCH messages through the loader: encodings, errors, policies, cleanup."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_loader import Bench

from shared.errors import MessageError, RecordError
from shared.formats.file_formats import FORMATS, Encoding
from shared.settings.batch_settings import BatchConfig, FailurePolicy
from target_spark.convert.converter import _spark_task
from target_spark.convert.task_reports import read_rejects
from target_spark.convert.write_tasks import RESULTS_DDL
from target_spark.core.load_plans import Batch, InputFile, LoadResult, Reject, StreamSchema

pytestmark = pytest.mark.spark

SCHEMA = {
    "properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}},
    "required": ["id"],
}
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "", None]})
LINES = b'{"id":1,"name":"a"}\n\n{"id":2,"name":""}\r\n{"id":3}'


@pytest.fixture
def bench(spark: Any, tmp_path: Path) -> Any:
    return lambda **settings: Bench(spark, tmp_path, add_record_metadata=False, **settings)


def supplied(path: Path, data: bytes, form: str, label: str = "none") -> InputFile:
    path.write_bytes(data)
    return InputFile(str(path), Encoding(form, label))


def written(path: Path, form: str, codec: str) -> InputFile:
    if FORMATS[form].rows == "lines":
        return supplied(path, gzip.compress(LINES), form, codec)
    FORMATS[form].write(str(path), ROWS.schema, [ROWS], codec)
    return InputFile(f"file://{path}", Encoding(form, codec))


def actual(spark: Any, b: Bench) -> list[tuple[Any, ...]]:
    rows = [tuple(row) for row in spark.read.parquet(b.table).collect()]
    return sorted(rows, key=lambda row: row[0] or 0)


EXPECTED = [(1, "a"), (2, ""), (3, None)]


def test_many_files_of_every_format_in_one_commit(bench: Any, spark: Any, tmp_path: Path) -> None:
    b = bench()
    files = [
        supplied(tmp_path / "a", LINES, "jsonl"),
        supplied(tmp_path / "b", gzip.compress(LINES[:30]) + gzip.compress(LINES[30:]), "jsonl"),
        supplied(tmp_path / "c", bz2.compress(LINES), "jsonl", "gzip"),
        supplied(tmp_path / "d", pa.compress(LINES, "zstd", asbytes=True), "jsonl", "none"),
        supplied(tmp_path / "e", b"", "jsonl", "gzip"),
        supplied(tmp_path / "f", b"\xef\xbb\xbf" + LINES, "jsonl"),
        *(written(tmp_path / f"p{codec}", "parquet", codec) for codec in ("snappy", "lz4", "none")),
        *(written(tmp_path / f"i{codec}", "arrow", codec) for codec in ("none", "lz4", "zstd")),
        *(written(tmp_path / f"v{codec}", "avro", codec) for codec in FORMATS["avro"].compressions),
        *(written(tmp_path / f"s{codec}", "csv", codec) for codec in ("none", "zstd")),
    ]
    pq.write_table(ROWS, tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    files.append(supplied(tmp_path / "w.parquet.gz", gzip.compress(whole), "parquet", "gzip"))
    batch = b.batch(*files, schema=SCHEMA)
    results = [b.loader.convert(b_of(batch, files[:4])), b.loader.convert(b_of(batch, files[4:]))]
    b.loader.commit(batch, results)
    assert actual(spark, b) == sorted(EXPECTED * (len(files) - 1), key=lambda row: row[0])


def b_of(batch: Batch, files: list[InputFile]) -> Batch:
    return Batch(batch.stream, tuple(files), batch.token)


def parquet(folder: Path) -> bytes:
    pq.write_table(ROWS, folder / "made")
    return (folder / "made").read_bytes()


def avro(folder: Path) -> bytes:
    FORMATS["avro"].write(str(folder / "made"), ROWS.schema, [ROWS], "none")
    return (folder / "made").read_bytes()


def arrow(folder: Path) -> bytes:
    FORMATS["arrow"].write(str(folder / "made"), ROWS.schema, [ROWS], "lz4")
    return (folder / "made").read_bytes()


def twice(folder: Path) -> bytes:
    columns = pa.schema([("id", pa.int64())] * 2)
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], schema=columns), folder / "twice")
    return (folder / "twice").read_bytes()


def twice_within(folder: Path) -> bytes:
    fields = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    pq.write_table(pa.table({"id": [1], "x": fields}), folder / "twice")
    return (folder / "twice").read_bytes()


DAMAGE: list[tuple[str, str, Callable[[Path], bytes | None], str]] = [
    ("missing", "jsonl", lambda _: None, "No such file"),
    ("cut gzip", "jsonl", lambda _: gzip.compress(LINES * 99)[:-9], "[Tt]runcated"),
    ("cut zstd", "jsonl", lambda _: pa.compress(LINES, "zstd", True)[:-5], "cannot be read"),
    ("cut bzip2", "csv", lambda _: bz2.compress(b"id,name\n1,x\n")[:-5], "cannot be read"),
    ("damaged gzip", "jsonl", lambda _: gzip.compress(LINES)[:12] + b"zzzzzzzz", "cannot"),
    ("empty parquet", "parquet", lambda _: b"", "an empty file"),
    ("empty avro", "avro", lambda _: b"", "an empty file"),
    ("empty csv", "csv", lambda _: b"", "an empty file"),
    ("cut parquet", "parquet", lambda p: parquet(p)[:-20], "footer"),
    ("empty arrow", "arrow", lambda _: b"", "an empty file"),
    ("cut arrow", "arrow", lambda p: arrow(p)[:-20], "truncated: its footer is missing"),
    ("damaged arrow", "arrow", lambda p: arrow(p).replace(b"\x04\x22\x4d\x18", b"zzzz"), "LZ4"),
    ("arrow as parquet", "parquet", arrow, "an Arrow file"),
    ("cut avro", "avro", lambda p: avro(p)[:-20], "damaged or cut"),
    ("parquet as jsonl", "jsonl", parquet, "labelled jsonl.* Parquet"),
    ("jsonl as parquet", "parquet", lambda _: LINES, "labelled parquet.*JSON lines"),
    ("gzipped jsonl as parquet", "parquet", lambda _: gzip.compress(LINES), "JSON lines.*by gzip"),
    ("csv as parquet", "parquet", lambda _: b"id,name\n1,x\n", "labelled parquet.*text"),
    ("avro as parquet", "parquet", avro, "an Avro file"),
    ("jsonl as csv", "csv", lambda _: LINES, "labelled csv.*JSON lines"),
    ("parquet as csv", "csv", parquet, "Parquet"),
    ("zip as jsonl", "jsonl", lambda _: b"PK\x03\x04....", "a zip file"),
    ("csv of something else", "csv", lambda _: b"a,b\n1,2\n", "none of the stream's columns"),
    ("csv with a name twice", "csv", lambda _: b"id,id\n1,2\n", "columns are named 'id'"),
    ("parquet with a name twice", "parquet", twice, "two of its columns are named 'id'"),
    ("parquet with a field twice", "parquet", twice_within, "two of its .* are named 'x.a'"),
    ("csv as jsonl", "jsonl", lambda _: b"id,name\n1,x\n2,y\n", "labelled jsonl.*text"),
    ("array as jsonl", "jsonl", lambda _: b'[{"id":1},\n{"id":2}]\n', "labelled jsonl.*array"),
    ("gzipped parquet as jsonl", "jsonl", lambda p: gzip.compress(parquet(p)), "jsonl.* Parquet"),
    ("open quotes", "csv", lambda _: b'id,name\n1,"x\n' + b"2,y\n" * 2**22, "never closed"),
    ("a line without end", "jsonl", lambda _: gzip.compress(b"{}\n" + b"x" * (160 << 20), 1),
     "line 2 is longer than 128 MiB"),
    ("unknown format", "xml", lambda _: b"<a/>", "format 'xml'"),
]  # fmt: skip


def test_damaged_files_are_named(bench: Any, tmp_path: Path) -> None:
    b = bench()
    for number, (name, form, make, match) in enumerate(DAMAGE):
        path = tmp_path / f"damaged-{number}.x"
        data = make(tmp_path)
        if data is not None:
            path.write_bytes(data)
        good = supplied(tmp_path / "good", LINES, "jsonl")
        files = (good, InputFile(str(path), Encoding(form)))
        with pytest.raises(MessageError, match=match) as caught:
            b.loader.convert(b.batch(*files, schema=SCHEMA))
        message = str(caught.value)
        assert "stream 's'" in message, name
        assert f"damaged-{number}.x" in message, name
        assert "\n" not in message, name
    assert not Path(b.table).exists()


def test_files_listed_twice(bench: Any, tmp_path: Path) -> None:
    b = bench()
    file = supplied(tmp_path / "a", LINES, "jsonl")
    with pytest.raises(MessageError, match=r"stream 's'.*/a'.*listed twice;"):
        b.loader.convert(b.batch(file, file, schema=SCHEMA))
    batch = b.batch(file, file, schema=SCHEMA)
    results = [b.loader.convert(b_of(batch, [file])) for _ in range(2)]
    with pytest.raises(MessageError, match="listed twice;"):
        b.loader.commit(batch, results)
    b.loader.abort(batch, results)
    assert not Path(b.table).exists()


def test_files_outside_of_the_allowed_roots(bench: Any, tmp_path: Path) -> None:
    b = bench(batch_config=BatchConfig(allowed_roots=(str(tmp_path / "in"),)))
    file = supplied(tmp_path / "a", LINES, "jsonl")
    os.mkdir(tmp_path / "in")
    os.symlink(file.url, tmp_path / "in" / "link")
    for url in (file.url, f"{tmp_path}/in/../a", f"{tmp_path}/in/link"):
        with pytest.raises(MessageError, match="allowed_roots"):
            b.loader.convert(b.batch(InputFile(url, file.encoding), schema=SCHEMA))
    b.load(b.staged([{"id": 1}]), schema=SCHEMA)


BAD = {
    "jsonl": b'{"id":1}\n\n{"id":"x"}\n{"name":"n"}\n{"id":2}\nnot json\n',
    "csv": b"id,name\n1,\nx,\n,n\n2,\nnot json,\n",
    "ragged.csv": b'id,name\n1,"a\nb"\n2\n3,b\n4,c,d\nx,\n5,J\xfcrgen\n',
}
BAD_ROWS = pa.table(
    {"id": ["1", "x", None, "2", "not json"], "name": [None, None, "n", None, None]}
)


def bad(tmp_path: Path, form: str) -> InputFile:
    path = tmp_path / f"bad.{form}"
    if form in BAD:
        return supplied(path, BAD[form], form)
    FORMATS[form].write(str(path), BAD_ROWS.schema, [BAD_ROWS], FORMATS[form].default_compression)
    return InputFile(str(path), Encoding(form))


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "avro", "arrow"])
class TestRejects:
    def test_fail_batch(self, bench: Any, tmp_path: Path, form: str) -> None:
        b = bench()
        with pytest.raises(RecordError, match=r"stream 's', file '.*/bad\..*', line \d") as caught:
            b.loader.convert(b.batch(bad(tmp_path, form), schema=SCHEMA))
        assert "records of this batch do not fit" in str(caught.value)
        assert not list(b.path.rglob("*.parquet"))

    def test_send_to_dead_letters(self, bench: Any, spark: Any, tmp_path: Path, form: str) -> None:
        b = bench(
            failure=FailurePolicy("SendToDLQ", dead_letter_path="x"),
            validate_records=form in BAD,
        )
        batch = b.batch(bad(tmp_path, form), schema=SCHEMA)
        result: LoadResult = b.loader.convert(batch)
        lines = {"jsonl": [3, 4, 6], "csv": [2, 3, 5]}.get(form, [2, 5])
        assert [reject.line for reject in result.rejects] == lines
        assert (result.rejected, result.rows) == (len(lines), 5 - len(lines))
        [(first, original), *_] = [
            pair for url in result.reject_files for pair in read_rejects(url)
        ]
        assert first == result.rejects[0] == Reject(batch.files[0].url, lines[0], first.reason)
        assert json.loads(original)["id"] == "x"
        b.loader.commit(batch, [result])
        assert [row[0] for row in actual(spark, b) if row[0]] == [1, 2]
        assert not any(Path(url).exists() for url in result.reject_files)


def test_ragged_rows_of_csv(bench: Any, spark: Any, tmp_path: Path) -> None:
    file = supplied(tmp_path / "ragged.csv", BAD["ragged.csv"], "csv")
    strict = bench()
    with pytest.raises(
        RecordError, match=r"stream 's', file '.*/ragged.csv', line 2: 1 field where the header"
    ):
        strict.loader.convert(strict.batch(file, schema=SCHEMA))
    strict.loader.close()
    b = bench(failure=FailurePolicy("SendToDLQ", dead_letter_path="x"))
    batch = b.batch(file, schema=SCHEMA)
    result = b.loader.convert(batch)
    assert [reject.line for reject in result.rejects] == [2, 4, 5, 6]
    assert (result.rejected, result.rows) == (4, 2)
    letters = [pair for url in result.reject_files for pair in read_rejects(url)]
    assert [reject for reject, _ in letters] == list(result.rejects)
    assert [text for _, text in letters] == [
        b"2", b"4,c,d", b'{"id":"x","name":null}', b'"5","J\xfcrgen"',
    ]  # fmt: skip
    b.loader.commit(batch, [result])
    assert actual(spark, b) == [(1, "a\nb"), (3, "b")]


def test_left_out_of_json_tables_too(bench: Any, tmp_path: Path) -> None:
    b = bench(format="json", failure=FailurePolicy("SendToDLQ", dead_letter_path="x"))
    batch = b.batch(bad(tmp_path, "jsonl"), schema=SCHEMA)
    result = b.loader.convert(batch)
    assert (result.rejected, result.rows, len(result.reject_files)) == (3, 2, 1)
    assert len(list(read_rejects(result.reject_files[0]))) == 3
    b.loader.abort(batch, [result])
    assert not Path(result.reject_files[0]).exists()


def test_log_and_continue(bench: Any, tmp_path: Path) -> None:
    b = bench(failure=FailurePolicy("LogAndContinue"))
    staged = b.staged([{"id": 1}, {"id": "x"}], first_line=5)
    result = b.loader.convert(b.batch(bad(tmp_path, "jsonl"), staged, schema=SCHEMA))
    assert [reject.line for reject in result.rejects] == [3, 4, 6, 6]
    assert (result.rejected, result.rows, result.reject_files) == (4, 3, ())


def test_consumed_files(bench: Any, tmp_path: Path, caplog: Any) -> None:
    files = [supplied(tmp_path / name, LINES, "jsonl") for name in "ab"]
    kept, staged = bench(), bench().staged([{"id": 1}])
    kept.loader.delete_consumed(files)
    assert all(Path(file.url).exists() for file in files)
    b = bench(batch_config=BatchConfig(cleanup=True, root=str(tmp_path)))
    gone = InputFile(str(tmp_path / "gone"), Encoding("jsonl"))
    b.loader.delete_consumed([*files, gone, staged])
    assert not any(Path(file.url).exists() for file in files)
    assert Path(staged.url).exists()
    (tmp_path / "folder").mkdir()
    b.loader.delete_consumed([InputFile(str(tmp_path / "folder"), Encoding("jsonl"))])
    assert "folder" in caplog.text


@pytest.mark.parametrize("is_link", [False, True])
def test_cleanup_of_files_with_escaped_names(bench: Any, tmp_path: Path, is_link: bool) -> None:
    root = tmp_path / "sp ace"
    root.mkdir()
    path = root / "a=1 %41"
    supplied(tmp_path / "other" if is_link else path, LINES, "jsonl")
    if is_link:
        path.symlink_to(tmp_path / "other")
    b = bench(batch_config=BatchConfig(cleanup=True, root=str(tmp_path)))
    file = InputFile(f"file://{quote(str(path))}", Encoding("jsonl"))
    b.loader.convert(b.batch(file))
    b.loader.delete_consumed([file])
    assert list(root.iterdir()) == []
    assert (tmp_path / "other").exists() == is_link
    twice = supplied(root / "b%20c", LINES, "jsonl")
    twice = replace(twice, url=f"file://{twice.url}")
    (root / "b c").touch()
    b.loader.convert(b.batch(twice))
    for _ in range(2):
        b.loader.delete_consumed([twice])
    assert list(root.iterdir()) == [root / "b c"]


@pytest.mark.parametrize("named", [{}, {"root": "in"}, {"allowed_roots": ("in",)}])
def test_cleanup_takes_nothing_outside_of_the_roots(
    bench: Any, tmp_path: Path, caplog: Any, monkeypatch: Any, named: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    inside = supplied(tmp_path / "in" / "a", LINES, "jsonl")
    outside = [supplied(tmp_path / name, LINES, "jsonl") for name in "bc"]
    dotted = InputFile(f"{tmp_path}/in/../b", Encoding("jsonl"))
    b = bench(batch_config=BatchConfig(cleanup=True, **named))
    b.loader.delete_consumed([inside, *outside, dotted])
    assert Path(inside.url).exists() == (not named)
    assert all(Path(file.url).exists() for file in outside)
    reported = [record.getMessage() for record in caplog.records if "not deleted" in record.message]
    assert len(reported) == 1
    assert reported[0].endswith(f"such as '{tmp_path}/{'b' if named else 'in/a'}'")


def test_options_never_reach_plans(bench: Any, spark: Any, tmp_path: Path, capfd: Any) -> None:
    secret = "Sesame-0pen-now"
    b = bench(batch_config=BatchConfig(root="memory://x", options={"key": "k", "secret": secret}))
    batch = b.batch(InputFile("memory://x/none.json", Encoding("jsonl"), size=1), schema=SCHEMA)
    write = b.loader._tables.prepare(batch)
    converter = b.loader._converter
    task: Any = _spark_task(batch, write, converter._read_plan(batch, write))
    spark.range(1).mapInArrow(task, RESULTS_DDL).explain("extended")
    assert secret not in capfd.readouterr().out
    assert secret not in repr(b.loader._files.options) + str(StreamSchema("s", SCHEMA))
    with pytest.raises(MessageError) as caught:
        b.loader.convert(batch)
    assert secret not in str(caught.value)


def test_avro_of_other_programs(bench: Any, spark: Any, tmp_path: Path) -> None:
    b = bench()
    schema = {"type": "record", "name": "r", "namespace": "n", "fields": [
        {"name": "id", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "name", "type": ["null", "int", "string"]},
    ]}  # fmt: skip
    with (tmp_path / "x.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"id": 1000, "name": 5}, {"id": 2000, "name": "x"}])
    stream = {"properties": {"id": {"type": "string", "format": "date-time"}, "name": {}}}
    b.load(InputFile(str(tmp_path / "x.avro"), Encoding("avro")), schema=stream)
    assert [row[1] for row in actual(spark, b)] == ["5", "x"]
