"""Runs of jobs: what the programs get, the record of a run, and the history."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared import jobs
from shared.errors import AlreadyRunningError, DestinationError
from shared.jobs import Command, Ends, JobOptions, JobRun, add_run, run_job, runs_in
from shared.settings.job_file import NamedJob, job_of, read_job_file
from shared.singer.run_summary import FORMAT, RunSummary, summarized
from shared.storage.owned_folders import lock_name

SECRET = "hunter2"


def job(folder: Path, **more: Any) -> NamedJob:
    own = {"tap": {"password": "${P}"}, "target": {"path": "out"}, "catalog": "c.json"}
    (folder / "job.yml").write_text(yaml.safe_dump({"jobs": {"orders": own}, **more}))
    return job_of(read_job_file(str(folder / "job.yml")), None, None, {"P": SECRET})


class Programs:
    """Stand for both programs: write the summaries that the command lines name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[Command] = []
        self.settings: list[Any] = []
        self.ends = Ends(0, 0)
        self.errors: list[Exception | None] = [None, None]
        monkeypatch.setattr(jobs, "run_pipe", self)

    def __call__(self, tap: Command, target: Command, folder: Path, environ: Any) -> Ends:
        self.commands = [tap, target]
        for command, error in zip(self.commands, self.errors, strict=True):
            args = list(command.args)
            self.settings.append(json.loads(Path(value_of(args, "--config")).read_bytes()))
            try:
                with summarized(args[2], value_of(args, "--summary")) as summary:
                    summary.add("s", sent=3, rejected=1)
                    summary.moved(2)
                    if error:
                        raise error
            except DestinationError:
                pass
        return self.ends


def value_of(args: list[str], option: str) -> str:
    return args[args.index(option) + 1]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(monkeypatch)


def test_settings_are_inherited_and_nothing_secret_is_in_a_command_line(
    tmp_path: Path, programs: Programs
) -> None:
    actual = job(tmp_path, metrics="prom", warn_drift=True)
    options = JobOptions(["a*"], ["b"], empty_code=99, overlap_code=98)
    assert run_job(actual, options) == 0
    assert programs.settings == [{"password": SECRET}, {"path": "out"}]
    tap, target = (list(command.args) for command in programs.commands)
    assert SECRET not in " ".join(tap + target)
    state = ["--state", str(tmp_path / "state/orders.json")]
    assert all(" ".join(state) in " ".join(args) for args in (tap, target))
    assert {"--catalog", "--warn-drift", "a*", "b", "99"} <= set(tap)
    assert {"--overlap-code", "98", "--warn-drift"} <= set(target)
    assert value_of(tap, "--metrics-file") == str(tmp_path / "prom/orders.tap.prom")
    # The files have no names, and are closed.
    assert not any(os.path.exists(value_of(args, "--config")) for args in (tap, target))
    assert not [file for file in tmp_path.rglob("*.json") if SECRET in file.read_text()]


def test_the_record_of_a_run_has_both_summaries(tmp_path: Path, programs: Programs) -> None:
    assert run_job(job(tmp_path), JobOptions()) == 0
    [(file, run)] = runs_in(tmp_path / "runs", None, None)
    facts = json.loads(file.read_text())
    assert [facts[name]["program"] for name in ("tap", "target")] == ["tap-spark", "target-spark"]
    assert (facts["format"], facts["exit_code"], facts["error"]) == (
        "singer-spark/job-run/1", 0, None
    )  # fmt: skip
    assert run.rows == (3, 2, 1)
    page = file.with_suffix(".html").read_text()
    assert all(facts[name]["run_id"] in page for name in ("tap", "target"))


def test_a_failed_run_is_recorded_with_its_reason(
    tmp_path: Path, programs: Programs, caplog: pytest.LogCaptureFixture
) -> None:
    programs.ends, programs.errors = Ends(8, 6), [None, DestinationError("disk full")]
    assert run_job(job(tmp_path), JobOptions()) == 6
    [(_, run)] = runs_in(tmp_path / "runs", "orders", None)
    assert (run.exit_code, run.error) == (6, "target-spark: disk full")
    assert "failed (exit code 6): target-spark: disk full" in caplog.text


def test_a_summary_of_an_earlier_run_is_none_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs
) -> None:
    run_job(job(tmp_path), JobOptions())
    monkeypatch.setattr(jobs, "run_pipe", lambda *_: Ends(137, 0))
    assert run_job(job(tmp_path), JobOptions()) == 137
    (file, run), _ = runs_in(tmp_path / "runs", None, None)
    assert (run.tap, run.target, run.error) == (None, None, "tap-spark: it wrote no summary")
    assert run.rows == (0, 0, 0)
    assert not file.with_suffix(".html").exists()


def test_one_run_at_a_time(tmp_path: Path, programs: Programs) -> None:
    actual = job(tmp_path)
    actual.history.mkdir(parents=True)
    lock = lock_name(actual.history, actual.key)
    try:
        for options, code in ((JobOptions(), 13), (JobOptions(overlap_code=99), 99)):
            with pytest.raises(AlreadyRunningError) as caught:
                run_job(actual, options)
            assert caught.value.exit_code == code
    finally:
        lock.release()
    assert programs.commands == []
    assert run_job(actual, JobOptions()) == 0


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(DestinationError, match="runs"):
        run_job(job(tmp_path), JobOptions())


def run_at(second: int, name: str = "orders") -> JobRun:
    summary = RunSummary("tap-spark").as_dict(None)
    return JobRun(name, "dev", f"2026-01-01T00:00:{second:02}.000Z", 1.5, 0, None, summary, None)


def test_the_history_is_bounded(tmp_path: Path) -> None:
    for second in range(5):
        add_run(tmp_path, run_at(second), keep=2)
    (tmp_path / "tap.json").write_text("{}")
    add_run(tmp_path, run_at(9), keep=2)
    assert {path.name for path in tmp_path.iterdir()} == {
        "tap.json",
        *(f"20260101T0000{n}.000Z.{kind}" for n in ("04", "09") for kind in ("json", "html")),
    }


def test_the_list_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    job(tmp_path)
    for second, name in enumerate(("orders", "users", "orders")):
        (tmp_path / "runs" / name).mkdir(parents=True, exist_ok=True)
        add_run(tmp_path / "runs" / name, run_at(second, name), keep=9)
    (tmp_path / "runs/orders/20260101T000008.000Z.json").write_text("no run")
    assert jobs.main(["runs"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["started", "job", "end"]
    assert [line.split()[1:4] for line in lines] == [
        ["00:00:02", "orders.dev", "ok"],
        ["00:00:01", "users.dev", "ok"],
        ["00:00:00", "orders.dev", "ok"],
    ]
    assert jobs.main(["runs", "job.yml", "orders", "--limit", "1", "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    facts = json.loads(line)
    assert (facts["started_at"], facts["error"]) == ("2026-01-01T00:00:02.000Z", None)
    assert Path(facts["record"]).exists()
    assert jobs.main(["runs", "job.yml", "ordrs"]) == 2
    assert jobs.main(["runs", "job.yml", "--env", "prd"]) == 2


def test_one_page_of_two_summaries(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = []
    for program in ("tap-spark", "target-spark"):
        files.append(str(tmp_path / program))
        with summarized(program, files[-1]):
            pass
    page = tmp_path / "run.html"
    assert jobs.main(["report", *files, "-o", str(page)]) == 0
    assert all(program in page.read_text() for program in ("tap-spark", "target-spark"))
    for text in (
        "{}",
        json.dumps({"format": FORMAT}),
        json.dumps({"format": FORMAT, "program": 3}),
    ):
        caplog.clear()
        Path(files[0]).write_text(text)
        assert jobs.main(["report", *files, "-o", str(page)]) == 3
        assert f"file '{files[0]}': is no run summary" in caplog.text
