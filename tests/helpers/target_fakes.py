"""A loader and a Spark without Spark, for tests of the run loop; also a program of its own."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.engine.engine import Engine
from shared.errors import AuditError, RecordError, Where
from shared.singer.run_summary import RunSummary
from target_spark.config import target_config
from target_spark.convert.task_reports import reject_line
from target_spark.core.balance import Committed, Loaded, check_commit, check_conversion
from target_spark.core.load_plans import (
    Batch,
    InputFile,
    LoadPlan,
    LoadResult,
    Part,
    Reject,
    StreamSchema,
)
from target_spark.load.guards.expectations import ExpectationGuard
from target_spark.run_settings import TargetConfig


class FakeSpark:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def get(self) -> Any:
        raise AssertionError("Spark is asked for")

    context = get

    def running(self) -> None:
        return None


def fake_engine(spark: FakeSpark | None = None) -> Engine:
    """Return an engine whose Spark starts with the first record."""
    engine = Engine(spark or FakeSpark())
    engine.needs("a test")
    return engine


class FakeLoader:
    """Keeps committed rows in `tables`, or as lines of files in `folder`."""

    def __init__(
        self,
        folder: Path | None = None,
        delay: float = 0.0,
        load_method: str = "append-only",
        config: TargetConfig | None = None,
    ) -> None:
        self.load_method = load_method
        self.publishes = config is not None and config.write_audit_publish
        self.expected = ExpectationGuard(config or TargetConfig())
        self.policy = "FailBatch"
        self.rejects_folder: Path | None = None
        self.passing_failures: list[BaseException] = []
        self.folder = folder
        self.delay = delay
        self.tables: dict[str, list[Any]] = defaultdict(list)
        self.committed: list[Batch] = []
        self.aborted: list[Batch] = []
        self.deleted: list[str] = []
        self.acts: list[tuple[str, Any]] = []
        self.fail_commit: BaseException | None = None
        self.threads: set[str] = set()
        self._rows: dict[str, list[Any]] = {}
        self._lock = threading.Lock()

    def plan(self, stream: StreamSchema) -> LoadPlan:
        return LoadPlan(overwrites=self.load_method == "overwrite")

    def convert(self, batch: Batch) -> LoadResult:
        self.threads.add(threading.current_thread().name)
        (file,) = batch.files
        rows, rejects = [], []
        for number, line in enumerate(Path(file.url).read_bytes().splitlines(), 1):
            try:
                rows.append(json.loads(line)["record"])
            except ValueError:
                first, stdin = [run for run in file.line_map if run[0] <= number][-1]
                place = stdin + number - first
                if self.policy not in ("LogAndContinue", "SendToDLQ"):
                    where = Where(stream=batch.stream.stream, line=place)
                    raise RecordError("not JSON", where=where) from None
                rejects.append((Reject(file.url, place, "not JSON"), line))
        with self._lock:
            self._rows[file.url] = rows
            self._maybe_fail()
        parts = (Part(file.url, len(rows), 1),)
        actual = tuple(reject for reject, _ in rejects)
        count = len(rows) + len(actual)
        kept = self._keep(rejects)
        result = LoadResult(parts, len(rows), actual, len(actual), kept, received=count)
        return check_conversion(batch, result)

    def _keep(self, rejects: list[tuple[Reject, bytes]]) -> tuple[str, ...]:
        if self.policy != "SendToDLQ" or not rejects:
            return ()
        path = self.rejects_folder / f"{id(rejects)}-{len(os.listdir(self.rejects_folder))}"
        path.write_bytes(b"".join(reject_line(*pair) for pair in rejects))
        return (str(path),)

    def _maybe_fail(self) -> None:
        if self.passing_failures:
            raise self.passing_failures.pop()

    def commit(self, batch: Batch, results: Sequence[LoadResult]) -> dict[str, Loaded]:
        if self.folder is not None:
            (self.folder / "committing").touch()
        if self.delay:
            time.sleep(self.delay)
        if self.fail_commit is not None:
            raise self.fail_commit
        self._maybe_fail()
        rows = [row for r in results for part in r.parts for row in self._rows[part.url]]
        with self._lock:
            self.tables[batch.stream.stream] += rows
            self.committed.append(batch)
            self.acts.append(("commit", batch.stream.stream))
        if self.folder is not None:
            path = self.folder / f"{batch.token}.tmp"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            path.rename(path.with_suffix(".done"))
        counts = check_commit(batch, results, Committed(len(rows)))
        self.expected.add(batch.stream.stream, counts, {"id": [0, 0, len(rows)]})
        return {batch.stream.stream: Loaded(counts)}

    def abort(self, batch: Batch, results: Sequence[LoadResult]) -> None:
        self.aborted.append(batch)

    deletes_consumed = True

    def delete_consumed(self, files: Sequence[InputFile]) -> None:
        self.deleted += [file.url for file in files]

    def may_refuse(self, stream: str) -> bool:
        return False

    def recall(self, stream: StreamSchema) -> tuple[int, ...]:
        return ()

    def cover(self, position: int, state: bytes, held: Mapping[str, int]) -> None:
        pass

    def close(self) -> None:
        pass

    def finish(self, stream: str, *, awaits_state: bool = False) -> dict[str, Loaded]:
        self.acts.append(("finish", stream))
        return {}

    def audit(self) -> None:
        if not self.publishes:
            self.expected.check()
            return
        if problems := self.expected.before_publish():
            raise AuditError("; ".join(problems))
        self.acts.append(("publish", dict(self.tables)))

    def check(self) -> None:
        self.expected.check()

    def tell_unmatched(self) -> None:
        pass

    def describe(self, summary: RunSummary) -> None:
        self.expected.describe(summary)

    def activate(self, stream: StreamSchema, version: int) -> None:
        self.acts.append(("activate", (stream.stream, version)))

    def check_keys(self, stream: StreamSchema) -> None:
        pass

    def delete_missing(self, keys: Batch) -> int:
        self.acts.append(("delete", [file.url for file in keys.files]))
        return 1


def config(tmp_path: Path, **settings: Any) -> TargetConfig:
    staging = {"root": str(tmp_path / "staging"), **settings.pop("staging", {})}
    return target_config({"path": str(tmp_path / "out"), "staging": staging, **settings})


def main() -> int:
    """Run the target with the fake loader: `python target_fakes.py FOLDER DELAY SETTINGS`."""
    import logging

    from shared.cli import report
    from shared.singer.stdout import claim_stdout
    from target_spark.receive.run import run_with

    folder, delay, settings = Path(sys.argv[1]), float(sys.argv[2]), json.loads(sys.argv[3])
    loader = FakeLoader(folder / "rows", delay)
    try:
        run_with(config(folder, **settings), 0, claim_stdout(), loader, fake_engine())
    except BaseException as error:
        return report(error, logging.getLogger("target"))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
