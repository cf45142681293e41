"""The real target, killed before each of its effects, and inputs that end anywhere.

After a rerun from the last STATE every row is there, and once where the docs say so.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fault_points
import pytest
from model_stores import DeltaStore, IcebergStore, ParquetStore, PostgresStore
from pipe_programs import Programs

pytestmark = [pytest.mark.pipe, pytest.mark.server]
COUNT, STEP = 18, 6
# A database is one for all tests.
_PLACES = itertools.count()
FEW = 3
"""Points in a quick run; `make soak` takes all."""
NAMES = ("delta", "iceberg", "postgresql", "parquet")


@pytest.fixture(params=NAMES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each destination in turn."""
    if request.param == "postgresql":
        return PostgresStore(request.getfixturevalue("postgres"))
    kinds = {"delta": DeltaStore, "iceberg": IcebergStore, "parquet": ParquetStore}
    return kinds[request.param](tmp_path)


def messages(folder: Path, first: int, has_key: bool) -> list[bytes]:
    """Return records from a number on, a STATE after every six; some in a BATCH message."""
    schema = {
        "type": "SCHEMA",
        "stream": "s",
        "schema": {"properties": {"n": {"type": "integer"}}},
        "key_properties": ["n"] if has_key else [],
        "bookmark_properties": ["n"],
    }
    found: list[dict[str, Any]] = [schema]
    for number in range(first, COUNT):
        if number % STEP == 0 and number // STEP == 1:
            file = folder / f"batch-{number}.jsonl"
            file.write_text("".join(f'{{"n":{n}}}\n' for n in range(number, number + STEP)))
            encoding = {"format": "jsonl", "compression": "none"}
            names = {"stream": "s", "encoding": encoding, "manifest": [str(file)]}
            found.append({"type": "BATCH", **names})
        elif number // STEP != 1:
            found.append({"type": "RECORD", "stream": "s", "record": {"n": number}})
        if (number + 1) % STEP == 0:
            found.append({"type": "STATE", "value": {"bookmarks": {"s": number + 1}}})
    return [json.dumps(message).encode() + b"\n" for message in found]


class Target:
    """Runs of the target into one place."""

    def __init__(self, programs: Programs, store: Any, method: str, **settings: Any) -> None:
        self.store, self.number, self.method = store, next(_PLACES), method
        self.folder = programs.folder
        own = {"load_method": method, "batch_size_rows": 4, "add_record_metadata": False}
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
            "FAULT_KIND": "jdbc" if self.store.name == "postgresql" else "",
        }
        command = [sys.executable, fault_points.__file__, "target-spark", *self._arguments]
        done = subprocess.run(
            command,
            input=b"".join(data),
            capture_output=True,
            env=environ,
            cwd=Path(__file__).parents[2],
            timeout=300,
            check=False,
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        states = [json.loads(line) for line in done.stdout.splitlines() if line.endswith(b"}")]
        return done.returncode, [state["bookmarks"]["s"] for state in states]

    def numbers(self) -> Counter[int]:
        return Counter(row["n"] for row in self.store.rows(self.number, "s") or [])

    def effects(self) -> int:
        """Return how many effects the last run had."""
        count = len(self._log.read_bytes().splitlines())
        self._log.unlink()
        return count

    def check(self, covered: int) -> None:
        """Run it again from the last STATE, and check the rows."""
        has_key = self.method == "upsert"
        first = 0 if self.method == "overwrite" else covered
        code, states = self.run(messages(self.folder, first, has_key))
        assert (code, states[-1:]) == (0, [] if first == COUNT else [COUNT])
        found = self.numbers()
        if self.store.name == "parquet" and self.method == "append-only":
            assert set(found) == set(range(COUNT))
            assert all(times == 1 for n, times in found.items() if n < covered)
            assert all(times <= 2 for times in found.values())
        else:
            assert found == Counter(range(COUNT)), (covered, found)


def _killed_at_each(
    programs: Programs, store: Any, method: str, most: int | None, **settings: Any
) -> None:
    data = messages(programs.folder, 0, method == "upsert")
    whole = Target(programs, store, method, **settings)
    assert whole.run(data)[0] == 0
    count = whole.effects()
    step = 1 if most is None else max(1, count // most)
    for at in range(step, count + 1, step):
        target = Target(programs, store, method, **settings)
        _, states = target.run(data, at)
        target.check(states[-1] if states else 0)


def test_a_target_killed_before_one_of_its_effects(programs: Programs, place: Any) -> None:
    _killed_at_each(programs, place, "append-only", FEW)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["threads", "spark"])
@pytest.mark.parametrize("method", ["append-only", "upsert", "overwrite"])
def test_a_target_killed_before_each_of_its_effects(
    programs: Programs, place: Any, method: str, engine: str
) -> None:
    if place.name == "parquet" and method == "upsert":
        pytest.skip("Parquet has no upsert")
    is_spark = engine == "spark"
    most = 12 if is_spark else None  # Each run starts Spark.
    _killed_at_each(programs, place, method, most, load_without_spark=not is_spark)


ENDS = [("between", 4), ("within", 4), ("between", 12), ("within", 12)]
"""Where the input ends: between two lines, or within one, after so many of them."""


@pytest.mark.parametrize(("where", "count"), ENDS)
def test_a_tap_killed_anywhere(programs: Programs, place: Any, where: str, count: int) -> None:
    data = messages(programs.folder, 0, False)
    cut = [*data[:count], *([data[count][:20]] if where == "within" else [])]
    target = Target(programs, place, "append-only")
    code, states = target.run(cut)
    assert code == (4 if where == "within" else 0)
    target.check(states[-1] if states else 0)


def test_rows_after_the_last_state_are_loaded_once_if_they_are_discarded(
    programs: Programs, tmp_path: Path
) -> None:
    store = ParquetStore(tmp_path)
    settings = {"rows_without_state": "discard", "batch_size_rows": 100}
    target = Target(programs, store, "append-only", **settings)
    assert target.run(messages(programs.folder, 0, False)[:-3]) == (0, [12])
    assert target.numbers() == Counter(range(12))
    target.check(12)
    assert target.numbers() == Counter(range(COUNT))
