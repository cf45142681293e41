"""The snippets for orchestrators do what their page says."""

from __future__ import annotations

import configparser
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from doc_pages import ROOT, blocks, text_of

from shared.cli import CHOSEN_CODE
from shared.errors import EXIT_CODES

PAGE = ROOT / "docs" / "orchestrators.md"
SAMPLES = ROOT / "sample_configs" / "orchestrators"
PLACE = "/srv/orders"
CSV = "id,name\n1,a\n2,b\n"
SCHEMA = {"type": "SCHEMA", "stream": "orders", "schema": {"properties": {}}, "key_properties": []}
PIPE = pytest.mark.pipe


def snippets(*languages: str) -> list[str]:
    return [block.text for block in blocks(*languages) if block.page == PAGE]


def samples(*names: str) -> list[str]:
    return [(SAMPLES / name).read_text(encoding="utf-8") for name in names]


SCRIPT = snippets("bash")[0]
UNITS = ("orders.service", "orders.timer")


class Folder:
    """A folder as the page describes it, with one stream of a CSV file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        programs = Path(sys.executable).parent
        self.env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        (path / "run.sh").write_text(SCRIPT)
        (path / "orders.csv").write_text(CSV)
        stream = {"format": "csv", "replication_method": "INCREMENTAL"}
        self.write("tap", {"streams": [{"name": "orders", "path": "orders.csv", **stream}]})
        self.write("target", {"path": "out"})
        assert self.shell(snippets("sh")[0]).returncode == 0

    def write(self, name: str, settings: dict[str, Any]) -> None:
        (self.path / f"{name}.json").write_text(json.dumps(settings))

    def shell(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run text as cron and GitHub do."""
        command = ["sh", "-e", "-c", text.replace(PLACE, str(self.path))]
        return subprocess.run(
            command, cwd=self.path, env=self.env, capture_output=True, text=True, check=False
        )

    @property
    def bookmarks(self) -> dict[str, Any]:
        state = self.path / "state.json"
        actual = json.loads(state.read_text()) if state.exists() else {}
        return dict(actual.get("bookmarks", {}))

    def summary(self, program: str) -> dict[str, Any]:
        return dict(json.loads((self.path / f"{program}-run.json").read_text()))

    @contextmanager
    def another_run(self) -> Iterator[None]:
        """Load into the table as long as the block runs."""
        command = ["target-spark", "--config", "target.json"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.path, env=self.env
        ) as process:
            assert process.stdin is not None
            process.stdin.write(json.dumps(SCHEMA).encode() + b"\n")
            process.stdin.flush()
            until(lambda: list(self.path.glob("out/.orders.lease-*")))
            yield
            process.kill()


def until(is_so: Any) -> None:
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.1)
    pytest.fail("it takes too long")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "work").mkdir()
    return Folder(tmp_path / "work")


def cron_line() -> str:
    [line] = [line for line in snippets("")[0].splitlines() if line.startswith("*/15")]
    return line.split(maxsplit=5)[5]


def test_the_page_names_every_sample() -> None:
    named = re.findall(r"orchestrators/([\w.-]+)\)", text_of(PAGE))
    assert set(named) == {file.name for file in SAMPLES.iterdir()}
    shown = {line.strip() for text in snippets("python") for line in text.splitlines()}
    assert shown <= {line.strip() for line in samples("airflow_dag.py")[0].splitlines()}


def test_codes_of_choice_are_nobody_elses() -> None:
    assert (CHOSEN_CODE.min, CHOSEN_CODE.max) == (64, 125)
    assert not {kind.exit_code for kind in EXIT_CODES} & set(range(64, 126))
    assert "from 64 to 125" in text_of(PAGE)


@PIPE
def test_a_run_without_news_is_skipped_and_the_state_is_pushed(folder: Folder) -> None:
    origin = folder.path.parent / "origin.git"
    begin = "git add . && git -c user.name=x -c user.email=x@x commit -qm begin"
    push = f"git remote add origin {origin} && git push -qu origin HEAD"
    created = folder.shell(f"git init -q --bare {origin} && git init -q && {begin} && {push}")
    assert created.returncode == 0, created.stderr
    job = yaml.safe_load(samples("github-actions.yml")[0])["jobs"]["load"]
    steps = [step["run"] for step in job["steps"] if "run" in step]
    for step in steps[1:]:
        done = folder.shell(step)
        assert done.returncode == 0, done.stderr
    assert folder.bookmarks["orders"]
    pushed = folder.shell(f"git -C {origin} show HEAD:state.json").stdout
    assert json.loads(pushed)["bookmarks"] == folder.bookmarks
    before = folder.bookmarks
    again = folder.shell("./run.sh")
    assert again.returncode == 99, again.stderr
    assert "tap-spark | nothing to do" in again.stderr
    ends = [(folder.summary(name)["exit_code"], folder.summary(name)["error"])
            for name in ("tap", "target")]  # fmt: skip
    assert ends == [(99, None), (0, None)]
    assert folder.bookmarks == before
    for step in steps[1:]:
        assert folder.shell(step).returncode == 0


@PIPE
def test_another_run_is_skipped(folder: Folder) -> None:
    with folder.another_run():
        done = folder.shell("./run.sh")
    assert done.returncode == 99, done.stderr
    actual = folder.summary("target")
    assert (actual["exit_code"], "another run loads" in actual["error"]) == (99, True)
    assert folder.bookmarks == {}


@PIPE
def test_cron_tells_of_failures_alone(folder: Folder) -> None:
    with (folder.path / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder.shell(cron_line())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (folder.path / "tap-run.json").exists()
    (folder.path / "orders.csv").unlink()
    failed = folder.shell(cron_line())
    assert "the path does not exist" in failed.stdout
    # The target has loaded nothing, and ended well.
    assert [folder.summary(name)["exit_code"] for name in ("tap", "target")] == [3, 0]


@PIPE
def test_a_signal_keeps_the_state_of_what_is_committed(folder: Folder) -> None:
    """As systemd and Airflow send it: to every process of the run."""
    both = [
        {"name": name, "path": "orders.csv", "format": "csv", "replication_method": "INCREMENTAL"}
        for name in ("first", "orders")
    ]
    folder.write("tap", {"streams": both})
    waits = {"policy": "wait", "wait_limit_seconds": 300}
    folder.write("target", {"path": "out", "overlapping_runs": waits, "batch_size_rows": 1})
    with folder.another_run():
        process = subprocess.Popen(
            ["./run.sh"],
            cwd=folder.path,
            env=folder.env,
            start_new_session=True,
            stderr=subprocess.PIPE,
        )
        until(lambda: folder.bookmarks)
        os.killpg(process.pid, signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    assert process.returncode == 143, log.decode()
    assert folder.bookmarks["first"]["files"]
    assert "files" not in folder.bookmarks.get("orders", {})


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_units(folder: Folder) -> None:
    units = [text.replace(PLACE, str(folder.path)) for text in samples(*UNITS)]
    files = [folder.path / Path(text.split()[1]).name for text in units]
    for file, text in zip(files, units, strict=True):
        file.write_text(text)
    command = ["systemd-analyze", "verify", *map(str, files)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, "orders" in checked.stderr) == (0, False), checked.stderr


@pytest.mark.parametrize("text", samples(*UNITS), ids=UNITS)
def test_units_are_of_systemd(text: str) -> None:
    unit = configparser.ConfigParser()
    unit.read_string(text)
    if "Service" in unit:
        assert unit["Service"]["ExecStart"] == f"{PLACE}/run.sh"
        assert unit["Service"]["SuccessExitStatus"] == "99"
    else:
        assert unit["Install"]["WantedBy"] == "timers.target"


def test_python_runs_the_script_and_skips() -> None:
    for text in samples("airflow_dag.py", "dagster_assets.py"):
        compile(text, "sample", "exec")
        assert f"{PLACE}/run.sh" in text or f'Path("{PLACE}")' in text
        assert "99" in text
