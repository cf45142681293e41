"""Files of dead letters by themselves."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import DestinationError
from shared.formats.file_formats import Encoding
from shared.formats.json_lines import LineReader
from shared.settings.texts import hide
from target_spark.convert.task_reports import read_rejects, reject_line
from target_spark.core.events import LineRejected, RecordsSeen, SchemaSeen
from target_spark.core.load_plans import Batch, InputFile, LoadResult, Reject, StreamSchema
from target_spark.core.reader import Reader
from target_spark.receive.dead_letters import DeadLetters

SCHEMA = {"properties": {"id": {"type": "integer"}, "big": {"maximum": 10**30}}}
STREAM = StreamSchema("s", SCHEMA, ("id",))
NOON = 1_795_262_400.0


def batch(*files: InputFile, version: int | None = None) -> Batch:
    return Batch(STREAM, files, "run-000001", version)


def rejected(tmp_path, *pairs: tuple[Reject, bytes]) -> LoadResult:
    path = tmp_path / "rejects"
    path.write_bytes(b"".join(reject_line(*pair) for pair in pairs))
    return LoadResult(rejected=len(pairs), reject_files=(str(path),))


def letters(folder) -> list[dict]:
    (path,) = folder.iterdir()
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@given(
    st.binary(max_size=50),
    st.text(max_size=20),
    st.integers(1, 2**60),
    st.none() | st.text(max_size=9),
)
def test_rejects_come_back_as_they_were(tmp_path_factory, original, reason, line, output):
    path = tmp_path_factory.mktemp("rejects") / "r"
    reject = Reject("file", line, reason, output)
    path.write_bytes(reject_line(reject, original) * 2)
    assert list(read_rejects(str(path))) == [(reject, original.rstrip(b"\r\n"))] * 2


def test_reasons_show_no_secret(tmp_path, monkeypatch):
    monkeypatch.setattr("shared.settings.texts._secrets", set())
    hide("hunter2")
    DeadLetters(str(tmp_path), "r").write_lines(1, [LineRejected(b"no", 1, "no 'hunter2'")])
    assert letters(tmp_path)[1]["record"]["reason"] == "no '***'"


def test_rows_of_batch_files_become_records(tmp_path):
    file = InputFile("s3://key:secret@bucket/b.jsonl", Encoding("jsonl"))
    result = rejected(
        tmp_path,
        (Reject(file.url, 7, "no integer"), b'{"id": 1.50,"big":123456789012345678901234567890}\n'),
        (Reject(file.url, 8, "not JSON"), b"oops\n"),
    )
    DeadLetters(str(tmp_path / "dlq"), "run", lambda: NOON).write(batch(file, version=5), [result])
    schema, record, own_schema, letter = letters(tmp_path / "dlq")
    assert (schema["stream"], schema["schema"]) == ("s", SCHEMA)
    assert schema["dead_letters"] and own_schema["dead_letters"]
    assert own_schema["stream"] == "sdc_dead_letters"
    assert (record["version"], record["record"]["big"]) == (5, 123456789012345678901234567890)
    assert record["_sdc_error"]["line"] == 7
    assert "secret" not in record["_sdc_error"]["file"]
    assert letter["record"]["original"] == "oops"
    (path,) = (tmp_path / "dlq").iterdir()
    assert b'"record":{"id": 1.50,' in path.read_bytes()


def test_a_letter_says_which_output_alone_lacks_its_record(tmp_path):
    file = InputFile("/b.jsonl", Encoding("jsonl"))
    outputs = [None, "one", None, "two", "one"]
    rejects = [Reject(file.url, n, "no", output) for n, output in enumerate(outputs)]
    result = rejected(tmp_path, *((reject, b'{"id":1}') for reject in rejects))
    DeadLetters(str(tmp_path / "dlq"), "run").write(batch(file), [result])
    actual = [
        line.get("dead_letters") or line["_sdc_error"]["line"] for line in letters(tmp_path / "dlq")
    ]
    assert actual == [True, 0, 2, "one", 1, 4, "two", 3]
    (path,) = (tmp_path / "dlq").iterdir()
    seen = [event for event in Reader().feed(path.read_bytes()) if isinstance(event, SchemaSeen)]
    assert [event.are_letters for event in seen] == [True, "one", "two"]


@pytest.mark.parametrize(
    "original",
    [
        b'{},"stream":"evil","record":{"id":1}',
        b'{"id":1}}\n{"type":"RECORD","stream":"evil","record":{"id":1}',
        b'{"id":1},"version":9',
        b"[1]",
        b"5",
    ],
)
def test_a_line_of_a_batch_file_cannot_become_another_message(tmp_path, original):
    file = InputFile("/b.jsonl", Encoding("jsonl"))
    result = rejected(tmp_path, (Reject(file.url, 1, "not JSON"), original.replace(b"\n", b" ")))
    DeadLetters(str(tmp_path / "dlq"), "run", lambda: NOON).write(batch(file), [result])
    schema, letter = letters(tmp_path / "dlq")
    assert schema["stream"] == letter["stream"] == "sdc_dead_letters"
    assert letter["record"]["original"].encode() == original.replace(b"\n", b" ")


def test_a_letter_is_read_by_the_fast_path_and_the_error_is_passed_over(tmp_path):
    file = InputFile("/staging/1", Encoding("singer"), line_map=((1, 1),))
    line = b'{"type":"RECORD","stream":"s","record":{"id":5},"version":3}\n'
    result = rejected(tmp_path, (Reject(file.url, 1, 'odd "version":7} text'), line))
    DeadLetters(str(tmp_path / "dlq"), "run", lambda: NOON).write(batch(file), [result])
    (path,) = (tmp_path / "dlq").iterdir()
    schema, event = list(Reader().feed(path.read_bytes()))
    assert isinstance(schema, SchemaSeen)
    assert schema.are_letters
    assert isinstance(event, RecordsSeen)
    assert (event.stream, event.version, event.lines) == ("s", 3, 1)
    reader = LineReader({"properties": {"id": {"type": "integer"}}}, envelope=True, strict=True)
    actual = reader.read(bytes(event.data))
    assert actual.rejects == ()
    assert actual.table.column("id").to_pylist() == [5]


def test_the_same_call_again_writes_the_same_file(tmp_path):
    dead = DeadLetters(str(tmp_path / "dlq"), "run", lambda: NOON)
    for _ in range(2):
        dead.write_lines(3, [LineRejected(b"x\n", 9, "no JSON")])
    schema, letter = letters(tmp_path / "dlq")
    assert schema["key_properties"] == []
    assert letter["record"] == {
        "original": "x",
        "stream": None,
        "line": 9,
        "reason": "no JSON",
        "time": "2026-11-21T12:00:00+00:00",
    }


def test_a_name_with_a_lone_surrogate(tmp_path):
    line = LineRejected(b"x\n", 9, "no JSON", "s\ud800")
    DeadLetters(str(tmp_path / "dlq"), "run").write_lines(3, [line])
    _, letter = letters(tmp_path / "dlq")
    assert letter["record"]["stream"] == "s?"


def test_a_url(tmp_path):
    import fsspec

    DeadLetters("memory://letters", "run").write_lines(1, [LineRejected(b"x\n", 9, "no JSON")])
    (name,) = fsspec.filesystem("memory").ls("/letters", detail=False)
    assert name.endswith("run-line-000001.jsonl")


def test_nothing_rejected_writes_nothing(tmp_path):
    DeadLetters(str(tmp_path / "dlq"), "run").write(batch(), [LoadResult()])
    assert not (tmp_path / "dlq").exists()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        DestinationError, match=r"failure\.dead_letter_path.*cannot be written"
    ) as e:
        DeadLetters(str(tmp_path / "file"), "run").write_lines(1, [])
    assert isinstance(e.value.__cause__, OSError)


def test_half_a_file_is_never_seen(tmp_path):
    def lines():
        yield LineRejected(b"x\n", 1, "no JSON")
        raise OSError(28, "No space left on device")

    with pytest.raises(DestinationError):
        DeadLetters(str(tmp_path / "dlq"), "run").write_lines(1, lines())
    assert [p for p in (tmp_path / "dlq").iterdir() if not p.name.startswith(".")] == []
    assert list((tmp_path / "dlq").iterdir()) == []
