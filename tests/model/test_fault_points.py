"""The real target, killed before each of its effects, and inputs that end anywhere.

After a rerun from the last STATE every row is there, and once where the docs say so.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from case_matrix import matrix
from forked_programs import ForkServer
from model_stores import (
    CsvStore,
    DeltaStore,
    IcebergStore,
    MySqlStore,
    ParquetStore,
    PostgresStore,
    S3Store,
)
from pipe_programs import Programs

from target_spark.replays import Bookmarks

pytestmark = [pytest.mark.pipe, pytest.mark.server, pytest.mark.costly]
COUNT, STEP = 18, 6
# A database is one for all tests.
_PLACES = itertools.count()
FEW = 3
"""Points in a quick run; `make soak` takes all."""
SPARK_POINTS = 6
"""Points if Spark starts in each run, unless `--fault-step` says which."""
NAMES = (
    "delta",
    pytest.param("iceberg", marks=pytest.mark.slow),  # Spark starts in each run.
    "postgresql",
    "parquet",
    "csv",
    "mariadb",
    pytest.param("mysql", marks=pytest.mark.slow),  # It has the statements of MariaDB.
    "s3",
)
METHODS = (
    "append-only",
    "append-only by key",
    "upsert",
    "overwrite",
    "overwrite by key",
    "history",
)
LAKES = {"delta", "iceberg"}
SERVERS = {"mariadb": "mariadb_server", "mysql": "mysql_server"}


@pytest.fixture(params=NAMES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each destination in turn."""
    if request.param == "postgresql":
        return PostgresStore(request.getfixturevalue("postgres"))
    if request.param == "s3":
        return request.getfixturevalue("s3_parquet")
    if request.param in SERVERS:
        return MySqlStore(request.getfixturevalue(SERVERS[request.param]))
    kinds = {"delta": DeltaStore, "iceberg": IcebergStore, "parquet": ParquetStore, "csv": CsvStore}
    return kinds[request.param](tmp_path)


def messages(folder: Path, first: int, method: str) -> list[bytes]:
    """Return records from a number on, a STATE after every six; some in a BATCH message.

    For `overwrite` by key the stream has a version, which shows that it is complete.
    """
    has_key = method.endswith("by key") or method in {"upsert", "history"}
    schema = {
        "type": "SCHEMA",
        "stream": "s",
        "schema": {"properties": {"n": {"type": "integer"}}},
        "key_properties": ["n"] if has_key else [],
        "bookmark_properties": ["n"],
    }
    sent: list[dict[str, Any]] = [schema]
    for number in range(first, COUNT):
        if number % STEP == 0 and number // STEP == 1:
            file = folder / f"batch-{number}.jsonl"
            file.write_text("".join(f'{{"n":{n}}}\n' for n in range(number, number + STEP)))
            encoding = {"format": "jsonl", "compression": "none"}
            names = {"stream": "s", "encoding": encoding, "manifest": [str(file)]}
            sent.append({"type": "BATCH", **names})
        elif number // STEP != 1:
            sent.append({"type": "RECORD", "stream": "s", "record": {"n": number}})
        if (number + 1) % STEP == 0:
            sent.append({"type": "STATE", "value": {"bookmarks": {"s": number + 1}}})
    return [json.dumps(message).encode() + b"\n" for message in sent]


class Target:
    """Runs of the target into one place."""

    def __init__(
        self, programs: Programs, forks: ForkServer, store: Any, method: str, **settings: Any
    ) -> None:
        self.store, self.number, self.method = store, next(_PLACES), method
        self.folder, self._forks = programs.folder, forks
        own = {"load_method": method.partition(" ")[0], "batch_size_rows": 4}
        own["add_record_metadata"] = False
        config = {**store.settings(self.number), **own, **settings}
        command = programs.target_command(config)
        self._arguments = command[command.index("--config") :]
        self._log = programs.folder / f"effects-{self.number}"

    def run(self, data: Sequence[bytes], at: int = 0) -> tuple[int, list[int]]:
        """Run it; kill it before an effect. Return its exit code and the STATEs."""
        environ = {
            **os.environ,
            "FAULT_AT": str(at),
            "FAULT_FOLDER": str(self.folder),
            "FAULT_LOG": str(self._log),
            "FAULT_KIND": self.store.effects,
        }
        target = self._forks.start(["target-spark", *self._arguments], environ)
        out, log = target.communicate(b"".join(data), timeout=300)
        assert b"Traceback" not in log, log.decode()
        assert b"unexpected" not in log, log.decode()
        states = [json.loads(line) for line in out.splitlines() if line.endswith(b"}")]
        return target.wait(), [state["bookmarks"]["s"] for state in states]

    def numbers(self) -> Counter[int]:
        return Counter(row["n"] for row in self.store.rows(self.number, "s") or [])

    def effects(self) -> int:
        """Return how many effects the last run had."""
        count = len(self._log.read_bytes().splitlines())
        self._log.unlink()
        return count

    def is_late(self, covered: int) -> bool:
        """Return whether a kill fell between the change of the note and the write of the STATE."""
        if not self.store.once or not any(n >= covered for n in self.numbers()):
            return False
        note = self.store.note(self.number)
        state = json.dumps({"bookmarks": {"s": covered}}).encode() if covered else b""
        return not note or json.loads(note)[0] != Bookmarks(state).digest("s")

    def check(self, covered: int, *, may_double: bool = False) -> None:
        """Run it again from the last STATE, and check the rows."""
        first = 0 if self.method.startswith("overwrite") else covered
        code, states = self.run(messages(self.folder, first, self.method))
        assert (code, states[-1:]) == (0, [] if first == COUNT else [COUNT])
        numbers = self.numbers()
        if self.method.startswith("append-only") and (may_double or not self.store.once):
            assert set(numbers) == set(range(COUNT))
            assert all(times == 1 for n, times in numbers.items() if n < covered)
            assert all(times <= 2 for times in numbers.values())
        else:
            assert numbers == Counter(range(COUNT)), (covered, numbers)


def _killed_at_each(target: Callable[[], Target], most: int | None, step: int | None) -> None:
    whole = target()
    data = messages(whole.folder, 0, whole.method)
    assert whole.run(data)[0] == 0
    assert whole.numbers() == Counter(range(COUNT))
    count = whole.effects()
    step = step or (1 if most is None else max(1, count // most))
    late = 0
    for at in range(step, count + 1, step):
        killed = target()
        _, states = killed.run(data, at)
        covered = states[-1] if states else 0
        is_late = killed.method.startswith("append-only") and killed.is_late(covered)
        late += is_late
        killed.check(covered, may_double=is_late)
    assert late <= 2 * COUNT // STEP


def test_a_target_killed_before_one_of_its_effects(
    programs: Programs, forks: ForkServer, place: Any
) -> None:
    _killed_at_each(lambda: Target(programs, forks, place, "append-only"), FEW, None)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["threads", "spark"])
@pytest.mark.parametrize("method", METHODS)
def test_a_target_killed_before_each_of_its_effects(
    programs: Programs,
    forks: ForkServer,
    place: Any,
    method: str,
    engine: str,
    request: pytest.FixtureRequest,
) -> None:
    if method in {"upsert", "history"} and isinstance(place, ParquetStore | S3Store):
        pytest.skip(f"not offered: {method} into files")
    if method == "history" and place.name not in LAKES:
        pytest.skip("not offered: history into databases")
    if place.name == "iceberg" and engine == "threads":
        pytest.skip("not offered: Iceberg by threads")
    is_spark = engine == "spark" or method == "history"
    settings = {"engine": "auto" if engine == "threads" else "spark"}
    most, step = SPARK_POINTS if is_spark else None, request.config.getoption("--fault-step")
    _killed_at_each(lambda: Target(programs, forks, place, method, **settings), most, step)


@pytest.mark.parametrize(
    ("place", "where", "count"),
    # The input ends between two lines, or within one, after so many of them.
    matrix(NAMES, ["within", "between"], [4, 12]),
    indirect=["place"],
)
def test_a_tap_killed_anywhere(
    programs: Programs, forks: ForkServer, place: Any, where: str, count: int
) -> None:
    data = messages(programs.folder, 0, "append-only")
    cut = [*data[:count], *([data[count][:20]] if where == "within" else [])]
    target = Target(programs, forks, place, "append-only")
    code, states = target.run(cut)
    assert code == (4 if where == "within" else 0)
    target.check(states[-1] if states else 0)


def test_rows_after_the_last_state_are_loaded_once_if_they_are_discarded(
    programs: Programs, forks: ForkServer, tmp_path: Path
) -> None:
    store = ParquetStore(tmp_path)
    settings = {"rows_without_state": "discard", "batch_size_rows": 100}
    target = Target(programs, forks, store, "append-only", **settings)
    assert target.run(messages(programs.folder, 0, "append-only")[:-3]) == (0, [12])
    assert target.numbers() == Counter(range(12))
    target.check(12)
    assert target.numbers() == Counter(range(COUNT))
