"""The file of `--state`: replaced durably and in one step, by one run at a time."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from target_fakes import fake_engine
from test_run import SCHEMA, Result, lines, record, state

from shared.errors import AlreadyRunningError, DestinationError, SettingsError
from target_spark.receive import state_file
from target_spark.receive.run import run_with
from target_spark.receive.state_file import StateFile

HOLD = "import sys, time; from target_spark.receive.state_file import StateFile as F; "


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "states"
    folder.mkdir()
    return folder / "state.json"


def keep(file: StateFile, value: bytes) -> None:
    file.prepare(value)
    file.publish()


def run_once(tmp_path: Path, path: Path, *messages: dict) -> Result:
    created = Result(tmp_path)
    (tmp_path / "messages.jsonl").write_bytes(lines(*messages))
    with (tmp_path / "messages.jsonl").open("rb") as data:
        file = StateFile(str(path))
        try:
            run_with(created.config, data.fileno(), created.output, created.loader,
                     fake_engine(created.spark), None, file)  # type: ignore[arg-type]  # fmt: skip
        finally:
            file.close()
    return created


def test_a_run_keeps_its_last_state_and_one_without_news_the_one_before(tmp_path, path):
    created = run_once(tmp_path, path, SCHEMA, record(1), state(1), record(2), state(2))
    assert created.output.states[-1] == 2
    assert json.loads(path.read_bytes()) == {"n": 2}
    assert run_once(tmp_path, path, SCHEMA).output.states == []
    assert json.loads(path.read_bytes()) == {"n": 2}
    assert list(path.parent.iterdir()) == [path]


def test_a_state_that_cannot_be_kept_covers_nothing_and_the_one_before_stays(
    tmp_path, path, monkeypatch
):
    path.write_text('{"n":0}')

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(state_file.os, "fsync", full)
    with pytest.raises(DestinationError, match=r"state\.json.*keep the STATE: No space left"):
        run_once(tmp_path, path, SCHEMA, record(1), state(1))
    assert path.read_text() == '{"n":0}'
    assert list(path.parent.iterdir()) == [path]


def test_mode_and_link_stay(path):
    real = path.with_name("real.json")
    real.touch(0o640)
    path.symlink_to(real.name)
    file = StateFile(str(path))
    keep(file, b"{}")
    file.close()
    assert path.is_symlink()
    assert real.read_bytes() == b"{}\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


@pytest.mark.parametrize("content", ["", "null", '{"a":\n1}', 'states\n{"a":1}\n'])
def test_what_may_be_a_state_is_replaced(path, content):
    path.write_text(content)
    file = StateFile(str(path))
    keep(file, b"5")
    file.close()
    StateFile(str(path)).close()


def test_what_is_no_state_is_not_replaced(path):
    settings = '{"path": "out", "format": "parquet"}'
    catalog = '{"streams": [{"tap_stream_id": "a"}]}'
    for content in ("id,name\n1,a\n", settings, catalog, "[" * 100_000):
        path.write_text(content)
        with pytest.raises(SettingsError, match="holds no STATE"):
            StateFile(str(path))
        assert path.read_text() == content
    os.mkfifo(path.with_name("fifo"))
    for other in (path.with_name("fifo"), path.parent, Path("/dev/null")):
        with pytest.raises(SettingsError, match="is not a file"):
            StateFile(str(other))
    for folder in (path.parent / "none", path):
        with pytest.raises(SettingsError, match="its folder is missing"):
            StateFile(str(folder / "state.json"))
    with pytest.raises(DestinationError, match=r"cannot keep the STATE: .*before stays"):
        StateFile("/proc/state.json")


def test_a_lock_is_for_one_file_and_ends_with_its_process(path):
    other = [sys.executable, "-c", f"{HOLD}F(sys.argv[1]); print(1, flush=True); time.sleep(60)"]
    with subprocess.Popen([*other, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        with pytest.raises(AlreadyRunningError, match="another run keeps its STATE") as caught:
            StateFile(str(path))
        assert caught.value.exit_code == 13
        StateFile(str(path.with_name("another.json"))).close()
        process.send_signal(signal.SIGKILL)
        process.wait()
    StateFile(str(path)).close()


def test_the_tap_of_the_pipe_may_have_read_what_another_run_has_replaced(path, monkeypatch, caplog):
    path.write_text("{}")
    now = time.time()
    monkeypatch.setattr(state_file, "_seconds_since_start", lambda: 10.0)
    for ahead in (-5, 30):  # also by a machine whose clock differs
        os.utime(path, (now, now + ahead))
        with pytest.raises(AlreadyRunningError, match="changed since this run began"):
            StateFile(str(path), in_pipe=True)
    os.utime(path, (now, now - 15))
    StateFile(str(path), in_pipe=True).close()
    assert caplog.messages == []
    os.utime(path, (now, now + 3600))
    StateFile(str(path), in_pipe=True).close()
    assert "state.json': its time lies in the future" in caplog.text
    assert list(path.parent.iterdir()) == [path]
