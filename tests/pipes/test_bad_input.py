"""Every way a run can go wrong ends in one clear line, its exit code, and nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.pipe

SCHEMA = {
    "type": "SCHEMA",
    "stream": "s",
    "schema": {
        "type": "object",
        "properties": {"id": {"type": ["integer", "null"]}, "t": {"type": ["string", "null"]}},
    },
    "key_properties": [],
}
GENERATED = {"name": "s", "format": "rows", "row_count": 3, "column_count": 2}


def lines(*messages: dict | str) -> bytes:
    texts = [m if isinstance(m, str) else json.dumps(m, separators=(",", ":")) for m in messages]
    return "".join(f"{text}\n" for text in texts).encode()


def record(number: object) -> dict:
    return {"type": "RECORD", "stream": "s", "record": {"id": number, "t": "x"}}


def state(number: int) -> dict:
    return {"type": "STATE", "value": {"bookmarks": {"s": {"n": number}}}}


def errors(log: bytes | str) -> list[str]:
    text = log if isinstance(log, str) else log.decode()
    assert "Traceback" not in text, text
    return [line for line in text.splitlines() if "| ERROR" in line]


def one_error(log: bytes | str, *parts: str) -> None:
    actual = errors(log)
    assert len(actual) == 1, log
    missing = [part for part in parts if part not in actual[0]]
    assert not missing, (missing, actual[0])


@pytest.mark.parametrize(
    ("config", "code", "parts"),
    [
        ({"streams": [{"name": "s", "format": "csv", "path": "no/such.csv"}]}, 3, ("no/such.csv",)),
        ({"streams": [{**GENERATED, "row_count": "x"}]}, 2, ("row_count", "'x'")),
        ({"strems": []}, 2, ("strems", "streams")),
    ],
)
def test_tap_refuses(programs, config, code, parts):
    result = programs.run(programs.tap_command(config))
    assert (result.returncode, result.stdout) == (code, b"")
    text = "\n".join(errors(result.stderr))
    assert all(part in text for part in parts), text


def test_tap_refuses_a_wrong_catalog_and_state(programs, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text('{"streams": [')
    for option in ("--catalog", "--state"):
        command = programs.tap_command({"streams": [GENERATED]})
        result = programs.run([*command, option, str(broken)])
        assert result.returncode == 3
        one_error(result.stderr, "broken.json")


def test_a_line_that_is_not_json_names_its_line_and_keeps_what_came_before(programs, tmp_path):
    target = programs.target_command({"path": str(tmp_path / "out"), "batch_size_rows": 2})
    good = lines(SCHEMA, record(1), record(2), state(2), record(3))
    process = subprocess.Popen(
        target,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(good)
    process.stdin.flush()
    assert json.loads(process.stdout.readline()) == state(2)["value"]
    out, err = process.communicate(b"not json\n", timeout=120)
    assert (process.returncode, out) == (4, b"")
    one_error(err, "line 6", "not json")
    assert pq.read_table(tmp_path / "out" / "s")["id"].to_pylist() == [1, 2]


OTHER = {**SCHEMA, "stream": "other"}
NO_JSON = '{"type":"RECORD","stream":"s","record":{"id":5'


def batch(*names: str) -> dict:
    encoding = {"format": "jsonl", "compression": "none"}
    return {"type": "BATCH", "stream": "s", "encoding": encoding, "manifest": list(names)}


@pytest.mark.parametrize(
    ("bad", "config", "code", "parts"),
    [
        (NO_JSON, {}, 5, ("stream 's'", "line 11", "JSON")),
        (record("five"), {"format": "delta"}, 5, ("stream 's'", "line 11", "'five'")),
        (batch("6.jsonl", "no-such.jsonl"), {}, 4, ("stream 's'", "no-such.jsonl")),
        (
            {**record(5), "record": {"id": 5, "t": "no number"}},
            {"stream_maps": {"s": {"n": "int(t) if id > 4 else id"}}},
            5,
            ("stream 's'", "line 11", "no number"),
        ),
    ],
    ids=["no JSON", "another type", "no file", "no map"],
)
def test_what_came_before_the_state_before_a_bad_record_is_durable(
    programs, tmp_path, bad, config, code, parts
):
    """One flush: records and batch files, a second stream, three STATEs, the bad, a fourth."""
    for number in (2, 3, 6):
        (tmp_path / f"{number}.jsonl").write_text(f'{{"id":{number},"t":"x"}}\n')
    messages = [SCHEMA, OTHER, record(1), state(1), batch("2.jsonl"), batch("3.jsonl"), state(2)]
    messages += [{**record(7), "stream": "other"}, state(3), record(4), bad, record(8), state(4)]
    settings = {"path": str(tmp_path / "out"), **config}
    result = programs.run(programs.target_command(settings), stdin=lines(*messages))
    last = result.stdout.splitlines(keepends=True)[-1:]
    assert (result.returncode, last) == (code, [lines(state(3)["value"])]), result.stderr.decode()
    one_error(result.stderr, *parts)
    actual = {
        name: sorted(
            number for path in parquet_files(tmp_path / "out" / name) for number in ids(path)
        )
        for name in ("s", "other")
    }
    assert actual == {"s": [1, 2, 3], "other": [7]}


def parquet_files(folder: Path) -> list[Path]:
    return list(folder.rglob("[!_.]*.parquet"))


def ids(path: Path) -> list[int]:
    return pq.read_table(path)["id"].to_pylist()


@pytest.mark.parametrize(
    ("messages", "code", "parts", "loaded"),
    [
        ((record(1),), 4, ("stream 's'", "line 1", "SCHEMA"), []),
        ((SCHEMA, record(1), record("x")), 5, ("stream 's'", "line 3", "id"), []),
        (
            (SCHEMA, record(1), '{"type":"RECORD","stream":"s","record":{"id":1,}}'),
            5,
            ("line 3",),
            [],
        ),
        ((SCHEMA, {"type": "RECORD", "stream": "s"}), 4, ("line 2",), []),
        ((SCHEMA, {"type": "NONSENSE"}), 4, ("line 2", "NONSENSE"), []),
    ],
)
def test_target_refuses(programs, tmp_path, messages, code, parts, loaded):
    target = programs.target_command({"path": str(tmp_path / "out")})
    result = programs.run(target, stdin=lines(*messages, state(1)))
    assert (result.returncode, result.stdout) == (code, b""), result.stderr.decode()
    one_error(result.stderr, *parts)
    assert [number for path in parquet_files(tmp_path / "out") for number in ids(path)] == loaded


def test_an_unwritable_path_is_named(programs, tmp_path):
    (tmp_path / "file").write_text("")
    target = programs.target_command({"path": str(tmp_path / "file" / "out")})
    result = programs.run(target, stdin=lines(SCHEMA, record(1), state(1)))
    assert (result.returncode, result.stdout) == (2, b""), result.stderr.decode()
    one_error(result.stderr, str(tmp_path / "file"))


@pytest.fixture
def small_disk(tmp_path: Path):
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a full disk needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("what", ["staging", "destination"])
def test_a_full_disk_is_told_apart(programs, tmp_path, small_disk, what):
    places = {
        "staging": {"path": str(tmp_path / "out"), "staging": {"root": str(small_disk)}},
        "destination": {"path": str(small_disk / "out"), "batch_size_rows": 2},
    }
    noise = [
        {"type": "RECORD", "stream": "s", "record": {"id": n, "t": os.urandom(4000).hex()}}
        for n in range(200)
    ]
    result = programs.run(
        programs.target_command(places[what]),
        stdin=lines(SCHEMA, *noise, state(1)),
    )
    assert result.returncode == 6, result.stderr.decode()
    assert result.stdout == b""
    one_error(result.stderr, "space", str(small_disk))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_the_target_with_the_state_of_what_is_durable(programs, tmp_path, number, code):
    command = programs.target_command({"path": str(tmp_path / "out"), "batch_size_rows": 2})
    target = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "target.log").open("wb"),
        cwd=tmp_path,
    )
    assert target.stdin is not None
    assert target.stdout is not None
    target.stdin.write(lines(SCHEMA, record(1), record(2), state(2), record(3), state(3)))
    target.stdin.flush()
    first = target.stdout.readline()
    time.sleep(0.5)
    target.send_signal(number)
    out, _ = target.communicate(timeout=60)
    assert target.returncode == code
    one_error((tmp_path / "target.log").read_text())
    assert [json.loads(line)["bookmarks"]["s"]["n"] for line in [first, *out.splitlines()]] == [2]
    assert pq.read_table(tmp_path / "out" / "s")["id"].to_pylist() == [1, 2]
