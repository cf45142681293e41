"""The target killed (SIGKILL) again and again while it appends records without keys.

One chain of runs over one table: each begins at the last STATE that went out. Records are equal in
their thousands, so that only their number tells whether one was lost or loaded twice. None is lost;
records are loaded twice only if a kill fell between the change of the note and the write of the
STATE after it (docs/guarantees.md). The note shows that, as it begins at a STATE that nobody got.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from case_matrix import with_slow
from kill_runs import PLAIN, Moment, Seen, noted, run, state_message
from model_source import line_of
from model_stores import Store
from table_files import check_data_files

pytestmark = [pytest.mark.pipe, pytest.mark.server, pytest.mark.soak, pytest.mark.costly]
STEP, MOST, ENOUGH = 300, 6_000, 1_000_000
SCHEMA = {"properties": {"status": {"type": "string"}, "block": {"type": "integer"}}}


def record(number: int) -> dict[str, Any]:
    return {"status": "ok", "block": number // 1_000}


def messages(folder: Path, first: int, count: int) -> bytes:
    """Return records from a STATE on, a STATE after every 300; every third lot is a BATCH."""
    schema = {"type": "SCHEMA", "stream": PLAIN, "schema": SCHEMA, "key_properties": []}
    sent: list[dict[str, Any]] = [schema]
    for start in range(first, first + count, STEP):
        numbers = range(start, start + STEP)
        if start // STEP % 3 == 2:
            file = folder / f"{start}.parquet"
            pq.write_table(pa.Table.from_pylist([record(n) for n in numbers]), file)
            kind = {"format": "parquet", "compression": "none"}
            sent.append(
                {"type": "BATCH", "stream": PLAIN, "encoding": kind, "manifest": [str(file)]}
            )
        else:
            sent += ({"type": "RECORD", "stream": PLAIN, "record": record(n)} for n in numbers)
        sent.append(state_message(PLAIN, numbers[-1] + 1))
    return b"".join(map(line_of, sent))


def blocks(first: int, end: int) -> Counter[int]:
    """Count the records of each block."""
    return Counter(number // 1_000 for number in range(first, end))


def skipped(log: str) -> int:
    """Count the records that a run has reported as skipped."""
    records = sum(map(int, re.findall(r"skipped (\d+) records", log)))
    return records + STEP * log.count("skipped a batch file")


def moment(chance: random.Random, nth: int) -> Moment:
    """Return a moment, mostly around a commit or a STATE; some while Spark still starts."""
    after = chance.choice(["commit", "commit", "commit", "state", "state", "start"])
    if not nth:
        return Moment("commit", 3, 0.0)
    if after == "start":
        return Moment(after, 0, chance.uniform(2, 9))
    seconds = chance.choice([0.0, chance.uniform(0, 0.01), chance.uniform(0, 0.3)])
    return Moment(after, chance.randint(1, 5), seconds)


# Records without a key are loaded into Iceberg by `test_destinations_killed`, too.
@with_slow("store", ["delta", "postgresql"], ["iceberg"], indirect=True)
def test_equal_records_are_loaded_once_however_often_the_run_is_killed(
    programs: Any, store: Store, tmp_path: Path, kills: int
) -> None:
    chance = random.Random(f"{store.name} {kills}")
    files = tmp_path / "batches"
    files.mkdir()
    staging = {"root": str(tmp_path / "staging")}
    command = programs.target_command(
        {**store.settings(0), "staging": staging, "batch_size_rows": 500}
    )
    seen: Seen = {"commit": lambda: store.commits(0), "file": lambda: store.files(0)}
    at, killed, reported, skips, windows = 0, 0, [], 0, 0
    expected, reached, again = Counter[int](), 0, False
    for kill in [*(moment(chance, nth) for nth in range(kills)), None]:
        begun = at
        ended = run(command, messages(files, at, MOST), tmp_path, kill, seen)
        assert list(ended.states) == sorted(ended.states)
        assert ended.code in {None, 0}, ended.log
        at = max([at, *ended.states])
        killed += ended.code is None
        skips += "skipped" in ended.log
        actual = Counter(row["block"] for row in store.rows(0, PLAIN) or [])
        if again:  # From that STATE on, records that the note lacks are loaded twice.
            reached = begun + skipped(ended.log)
        loaded = reached + actual.total() - expected.total()
        expected += blocks(reached, loaded)
        reached = loaded
        note = store.note(0)
        since = noted(note, PLAIN, ENOUGH)
        reported.append(f"{kill} -> STATE {at}, loaded to {loaded}, note from {since}")
        assert reached >= at, reported
        assert actual == expected, "\n".join([*reported[-3:], ended.log])
        again = (since or at) > at or (not note and reached > at and not reached % STEP)
        windows += again
    assert killed >= (kills + 1) // 2, reported
    assert at >= MOST * (1 + kills // 10), reported
    assert skips or kills < 10, reported
    assert windows <= 1 + kills // 25, reported
    assert reached == at, reported
    assert store.leftovers(0) == []
    assert list((tmp_path / "staging").iterdir()) == []
    if store.name != "postgresql":
        assert check_data_files(tmp_path)
