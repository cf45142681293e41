"""Tap and target killed (SIGKILL) again and again between topics of Kafka and Delta tables.

One chain of runs: each begins with the last STATE that the target wrote, as cron would. Rows are
upserted and deleted by their key, events are appended without any, so that each message that is
lost or loaded twice shows.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from model_stores import DeltaStore
from pipe_programs import Programs

if TYPE_CHECKING:
    from kafka_broker import KafkaBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.pipe,
    pytest.mark.server,
    pytest.mark.soak,
    pytest.mark.costly,
]
ROWS, EVENTS, PARTITIONS, LONGEST = "rows", "events", 2, 300.0
MOST, PHASE = 50, 10


@dataclass
class Topics:
    """Two topics, and what tables must hold that follow them."""

    broker: KafkaBroker
    chance: random.Random
    names: dict[str, str] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    events: Counter[int] = field(default_factory=Counter)
    sent: int = 0

    def __post_init__(self) -> None:
        self.names = {name: self.broker.topic(PARTITIONS) for name in (ROWS, EVENTS)}

    def grow(self, count: int) -> None:
        """Send messages: changes of few keys, and events that are equal in their hundreds."""
        for _ in range(count // 100):
            number = self.sent
            part = number // 100 % PARTITIONS
            keys = [self.chance.randrange(40) * PARTITIONS + part for _ in range(100)]
            changes: list[tuple[Any, Any]] = []
            for offset, key in enumerate(keys):
                gone = self.chance.random() < 0.2
                value = None if gone else {"id": key, "n": number + offset}
                changes.append(({"id": key}, value))
                self.rows.pop(key, None)
                if not gone:
                    self.rows[key] = number + offset
            # The messages of a key share a partition.
            self.broker.send(self.names[ROWS], changes, part)
            block = [(None, {"block": number // 500})] * 100
            self.broker.send(self.names[EVENTS], block, part)
            self.events[number // 500] += 100
            self.sent += 100

    def tap(self, *, batch_root: str | None) -> dict[str, Any]:
        """Return settings of the tap, which has many slices to read."""
        keyed = {"key_format": "json", "key_schema": "id BIGINT", "schema": "id BIGINT, n BIGINT"}
        common = {"format": "kafka", "offsets_per_slice": 150}
        batch = {
            "encoding": {"format": "parquet", "compression": "none"},
            "storage": {"root": batch_root},
        }
        return {
            "connections": [self.broker.connection(include=[])],
            "streams": [
                {"name": ROWS, "topic": self.names[ROWS], **keyed, **common},
                {"name": EVENTS, "topic": self.names[EVENTS], "schema": "block INT", **common},
            ],
            "state_interval_seconds": 0.01,
            **({} if batch_root is None else {"batch_config": batch}),
        }


@dataclass(frozen=True)
class Kill:
    """Who is killed when: after so many commits or STATE lines, and so many seconds."""

    who: tuple[str, ...]
    after: str
    count: int
    seconds: float


def moment(chance: random.Random) -> Kill:
    who = chance.choice([("tap",), ("target",), ("target",), ("tap", "target")])
    after = chance.choice(["commit", "commit", "state", "start"])
    if after == "start":
        return Kill(who, after, 0, chance.uniform(1, 12))
    return Kill(who, after, chance.randint(1, 8), chance.choice([0, chance.uniform(0, 0.5)]))


@dataclass
class Chain:
    """Runs of both programs, one after the other, with the STATE in between."""

    programs: Programs
    store: DeltaStore
    topics: Topics
    state: dict[str, Any] | None = None
    reported: list[str] = field(default_factory=list)
    killed: int = 0

    def run(self, kill: Kill | None, *, batch_root: str | None) -> None:
        """Run the pipe; kill at the moment, if it comes before the end."""
        logs = {
            name: self.programs.folder / f"{name}-{len(self.reported)}.log"
            for name in ("tap", "target")
        }
        target_settings = {
            **self.store.settings(0),
            "hard_delete": True,
            "batch_size_rows": 200,
            # On a busy machine a replay may take longer than its flush may wait.
            "batch_wait_limit_seconds": 600,
            "streams": {ROWS: {"load_method": "upsert"}},
        }
        with logs["tap"].open("wb") as tap_log, logs["target"].open("wb") as target_log:
            tap = subprocess.Popen(
                self.programs.tap_command(self.topics.tap(batch_root=batch_root), self.state),
                stdout=subprocess.PIPE,
                stderr=tap_log,
                cwd=self.programs.folder,
            )
            target = subprocess.Popen(
                self.programs.target_command(target_settings),
                stdin=tap.stdout,
                stdout=subprocess.PIPE,
                stderr=target_log,
                cwd=self.programs.folder,
            )
            assert tap.stdout is not None
            tap.stdout.close()
            lines: list[bytes] = []
            assert target.stdout is not None
            reader = threading.Thread(target=lines.extend, args=(target.stdout,))
            reader.start()
            try:
                is_killed = kill is not None and self._kill(kill, lines, tap, target)
                codes = [tap.wait(LONGEST), target.wait(LONGEST)]
            finally:
                for process in (tap, target):
                    process.kill()
                reader.join(30)
        self.reported.append(
            f"{kill} {'killed' if is_killed else 'ended'} {codes} {len(lines)} STATE"
        )
        self.killed += is_killed
        if not is_killed:
            assert codes == [0, 0], logs["tap"].read_text() + logs["target"].read_text()
        if lines:
            self.state = json.loads(lines[-1])

    def _kill(self, kill: Kill, lines: list[bytes], tap: Any, target: Any) -> bool:
        seen = {"commit": lambda: self.store.commits(0), "state": lines.__len__, "start": lambda: 0}
        count = seen[kill.after]
        before, end = count(), time.monotonic() + LONGEST
        while count() - before < kill.count and time.monotonic() < end:
            if target.poll() is not None:
                return False
            time.sleep(0.005)
        time.sleep(kill.seconds)
        if target.poll() is not None:
            return False
        for process in (p for name, p in (("tap", tap), ("target", target)) if name in kill.who):
            process.kill()
        return True

    def check(self) -> None:
        """Check that the tables hold what the topics say."""
        rows = {row["id"]: row["n"] for row in self.store.rows(0, ROWS) or []}
        assert rows == self.topics.rows, self.reported
        events = Counter(row["block"] for row in self.store.rows(0, EVENTS) or [])
        assert events == self.topics.events, self.reported

    @property
    def is_settled(self) -> bool:
        """Return whether the STATE is at the end of both topics."""
        marks = ((self.state or {}).get("bookmarks") or {}).values()
        ends = [sum((mark.get("offsets") or {}).values()) for mark in marks]
        return ends == [self.topics.sent] * 2


def test_tables_equal_their_topics_however_often_a_program_is_killed(
    kafka: KafkaBroker, programs: Programs, tmp_path: Path, kills: int
) -> None:
    most = min(kills, MOST)
    chance = random.Random(f"kafka {most}")
    chain = Chain(programs, DeltaStore(tmp_path), Topics(kafka, chance))
    files = tmp_path / "batches"
    files.mkdir()
    # A replay has the bytes of what it repeats: their form changes only after a whole run.
    for start in range(0, most, PHASE):
        batch_root = str(files) if start // PHASE % 2 else None
        chain.topics.grow(400)
        for nth in range(start, min(start + PHASE, most)):
            kill = moment(chance) if nth else Kill(("target",), "commit", 3, 0)
            chain.run(kill, batch_root=batch_root)
            if nth % 2:
                chain.topics.grow(200)
        # The first run finishes what was interrupted, the second reads what is newer.
        for _ in range(2):
            if not chain.is_settled:
                chain.run(None, batch_root=batch_root)
        assert chain.is_settled, chain.reported
        chain.check()
    assert chain.killed >= (most + 1) // 2, chain.reported
