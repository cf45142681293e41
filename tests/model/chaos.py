"""Both real programs under faults that a seed chooses, over CSV files that grow.

A chain of runs loads into one place: each begins at the last STATE that came out, and most of them
are disturbed. Then one run ends well, and the tables are compared with the files.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from forked_programs import Forked, ForkServer
from kill_runs import ADDED, KEPT
from model_stores import Store
from pipe_programs import Programs

from target_spark.replays import Bookmarks

KEYS, LONGEST = 500, 240.0
HEADERS = {ADDED: "n,t", KEPT: "id,n"}
SCHEMAS = {ADDED: "n BIGINT, t STRING", KEPT: "id BIGINT, n BIGINT"}
KINDS = (*["effect"] * 4, *["kill"] * 4, "terminate", "cut", "disk", "twin", "others", "lost")
FINE, LASTING, UNREADABLE, STORAGE, NO_SPARK, OVERLAP = 0, 2, 4, 6, 7, 13
ENDS: Mapping[str, set[int]] = {
    "cut": {UNREADABLE},
    "disk": {LASTING, STORAGE, NO_SPARK},  # A limited size of files, unlike a full disk, lasts.
    "lost": {STORAGE},
    "terminate": {143, -signal.SIGTERM},
    "effect": {-signal.SIGKILL},
    "kill": {-signal.SIGKILL},
}
"""How a program that is disturbed may end, other than well."""


@dataclass(frozen=True)
class Place:
    """A destination, and what else can be done to it.

    Attributes:
        store: The destination.
        upserts: Whether it offers `upsert` at little cost.
        insert: Let another program add a row with a number; None if it cannot.
        damage: Let another program change rows of the table that has keys; None if it cannot.
        disconnect: End all connections; None if it has none.
        settle: Wait until nothing of a killed run is on its way.
    """

    store: Store
    upserts: bool
    insert: Callable[[int, int], None] | None = None
    damage: Callable[[int], None] | None = None
    disconnect: Callable[[], None] | None = None
    settle: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Fault:
    """What disturbs a run.

    Attributes:
        kind: One of `KINDS`, or nothing.
        who: The programs that it hits.
        share: When, as a share of the length of a run.
    """

    kind: str = ""
    who: tuple[str, ...] = ()
    share: float = 0.0


@dataclass
class Figures:
    """What a series of chains has shown."""

    runs: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    lost: int = 0
    doubled: int = 0
    documented: int = 0

    def __str__(self) -> str:
        kills = self.faults["effect"] + self.faults["kill"]
        others = ", ".join(f"{name} {n}" for name, n in sorted(self.faults.items()))
        return (
            f"{self.runs} runs, {kills} kills ({others}), {self.rows} rows; "
            f"rows lost: {self.lost}, doubled where not documented: {self.doubled}, "
            f"where documented: {self.documented}"
        )


class Source:
    """CSV files of two streams; rows of a stream are numbered in their order."""

    def __init__(self, folder: Path, streams: tuple[str, ...]) -> None:
        self.folder, self.streams, self.count = folder, streams, 0
        self._starts: dict[str, int] = {}
        for name in streams:
            (folder / name).mkdir(parents=True)

    def grow(self, count: int) -> None:
        """Add a file of so many rows to each stream."""
        for name in self.streams:
            path = self.folder / name / f"{len(self._starts):06d}.csv"
            self._starts[str(path)] = self.count
            numbers = range(self.count, self.count + count)
            path.write_text("\n".join([HEADERS[name], *(_line(name, n) for n in numbers), ""]))
        self.count += count

    def settings(self) -> dict[str, Any]:
        """Return the settings of the tap."""
        return {
            "streams": [
                {
                    "name": name,
                    "format": "csv",
                    "path": str(self.folder / name),
                    "schema": SCHEMAS[name],
                    "replication_method": "INCREMENTAL",
                    **({"key_properties": ["id"]} if name == KEPT else {}),
                }
                for name in self.streams
            ],
            "state_interval_seconds": 0.01,
        }

    def covered(self, state: bytes) -> set[int]:
        """Return the numbers of the rows that are not sent again after a STATE."""
        bookmarks = json.loads(state)["bookmarks"] if state else {}
        numbers: set[int] = set()
        for path, mark in bookmarks.get(ADDED, {}).get("files", {}).items():
            start = self._starts[path]
            numbers.update(range(start, start + max(0, mark["lines"] - 1)))
        return numbers

    def kept(self) -> dict[int, int]:
        """Return the last number of each key."""
        return {n % KEYS: n for n in range(self.count)}


def _line(stream: str, number: int) -> str:
    return f"{number},row {number}" if stream == ADDED else f"{number % KEYS},{number}"


@dataclass
class Chain:
    """Runs into one place, one after the other, with the STATE in between."""

    programs: Programs
    forks: ForkServer
    place: Place
    number: int
    source: Source
    figures: Figures
    chance: random.Random
    settings: Mapping[str, Any]
    state: bytes = b""
    inserted: set[int] = field(default_factory=set)
    moments: list[float] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    spare: Counter[int] = field(default_factory=Counter)
    seconds: float = 1.5
    effects: dict[str, int] = field(default_factory=lambda: {"tap": 14, "target": 80})
    voided: bool = False

    def fork(
        self,
        name: str,
        command: list[str],
        *,
        verb: Sequence[str] = (),
        at: int = 0,
        log: Path | None = None,
        disk: str = "",
    ) -> Forked:
        """Start a program.

        Args:
            name: `tap` or `target`.
            command: Its command; the part from its settings on counts.
            verb: What to do instead of a run.
            at: The effect before which it is killed; 0 for none.
            log: Where it writes down its effects.
            disk: Bytes of the largest file that it can write; empty for any.
        """
        environ = {
            "FAULT_AT": str(at),
            "FAULT_FOLDER": str(self.programs.folder),
            "FAULT_LOG": str(log or os.devnull),
            "FAULT_DISK": disk,
            "FAULT_KIND": self.place.store.effects if name == "target" else "",
        }
        arguments = [f"{name}-spark", *verb, *command[command.index("--config") :]]
        return self.forks.start(arguments, {**os.environ, **environ})

    def fault(self) -> Fault:
        kind = self.chance.choice(KINDS)
        place = self.place
        if (kind == "others" and not place.insert) or (kind == "lost" and not place.disconnect):
            kind = "effect"
        if kind == "disk" and "engine" in self.settings:
            kind = "kill"  # Java needs larger files than the limit.
        if kind == "twin" and "write_audit_publish" in self.settings:
            kind = "effect"  # No STATE before the end tells that the run has its leases.
        who: tuple[str, ...] = ("target",)
        if kind in {"effect", "kill", "terminate"}:
            who = self.chance.choice([("tap",), ("target",), ("target",)])
        if kind == "kill" and self.chance.random() < 0.3:
            who = ("tap", "target")
        return Fault(kind, who, self.chance.random())

    def run(self, fault: Fault) -> None:
        """Run both programs, disturbed by a fault; keep the last STATE that came out."""
        self.place.settle()
        covered, inserted = self.source.covered(self.state), len(self.inserted)
        excess = {n for n in self.numbers() if n >= 0 and n not in covered}
        loose = not self.place.store.once or self.voided or self._is_late(bool(excess))
        pipe = Pipe(self, fault)
        started = time.monotonic()
        pipe.run()
        if not fault.kind:
            self.seconds = time.monotonic() - started
        self.voided = self.voided or len(self.inserted) > inserted
        if loose or self.voided:
            self.spare.update(excess)
        self.state = pipe.states[-1] if pipe.states else self.state
        self.figures.runs += 1
        if fault.kind:
            self.figures.faults[fault.kind] += 1
        self.story.append(f"{fault} -> {pipe.codes}, {len(pipe.states)} STATE, {len(excess)} over")
        pipe.check()

    def _is_late(self, has_excess: bool) -> bool:
        """Return whether a kill fell between the change of the note and the write of the STATE."""
        if not has_excess or not self.place.store.once:
            return False
        note = self.place.store.note(self.number)
        return not note or json.loads(note)[0] != Bookmarks(self.state).digest(ADDED)

    def insert(self) -> None:
        """Let another program add a row, if the table exists."""
        assert self.place.insert is not None
        if self.place.store.rows(self.number, ADDED) is not None:
            number = min(self.inserted, default=0) - 1
            self.place.insert(self.number, number)
            self.inserted.add(number)

    def numbers(self) -> Counter[int]:
        return Counter(row["n"] for row in self.place.store.rows(self.number, ADDED) or [])

    def check(self) -> None:
        """Compare the tables with the files, and count what differs."""
        rows = self.numbers()
        expected = Counter([*range(self.source.count), *self.inserted])
        self.figures.rows += self.source.count
        lost, again = expected - rows, rows - expected
        self.figures.lost += lost.total()
        self.figures.doubled += (again - self.spare).total()
        self.figures.documented += (again & self.spare).total()
        story = "\n".join(self.story)
        assert not lost, f"lost {sorted(lost)[:9]} of {lost.total()}:\n{story}"
        assert not again - self.spare, f"doubled {sorted(again - self.spare)[:9]}:\n{story}"
        if KEPT in self.source.streams:
            kept = {row["id"]: row["n"] for row in self.place.store.rows(self.number, KEPT) or []}
            assert kept == self.source.kept(), story
        self.voided = False
        self.moments.append(time.time())


class Pipe:
    """One run of both programs, with the harness between them."""

    def __init__(self, chain: Chain, fault: Fault) -> None:
        self._chain, self._fault = chain, fault
        self._folder = chain.programs.folder
        self._logs: dict[str, list[bytes]] = {"tap": [], "target": []}
        self.states: list[bytes] = []
        self.codes: list[int] = []
        self._is_late = threading.Event()
        """Set once the input of the target may end."""

    def run(self) -> None:
        chain, fault = self._chain, self._fault
        state = json.loads(chain.state) if chain.state else None
        self._tap = chain.programs.tap_command(chain.source.settings(), state)
        self._target = chain.programs.target_command(chain.settings)
        tap, target = self._started("tap", self._tap), self._started("target", self._target)
        threads = [
            threading.Thread(target=self._relay, args=(tap.stdout, target.stdin)),
            threading.Thread(target=self._read, args=(target.stdout,)),
            threading.Thread(target=self._logs["tap"].extend, args=(tap.stderr,)),
            threading.Thread(target=self._logs["target"].extend, args=(target.stderr,)),
        ]
        for thread in threads:
            thread.start()
        if fault.kind != "twin":
            self._is_late.set()
        try:
            self._disturb({"tap": tap, "target": target})
            self._is_late.set()
            self.codes = [tap.wait(LONGEST), target.wait(LONGEST)]
        finally:
            self._is_late.set()
            for process in (tap, target):
                process.kill()
            for thread in threads:
                thread.join(30)
        if not fault.kind:
            for name in chain.effects:
                chain.effects[name] = len(self._effects(name).read_bytes().splitlines())

    def _effects(self, name: str) -> Path:
        return self._folder.parent / f"{self._folder.name}-effects-{name}"

    def _started(self, name: str, command: list[str]) -> Forked:
        """Start a program, so that it can count its effects."""
        at, fault = 0, self._fault
        if fault.kind == "effect" and name in fault.who:
            at = 1 + int(fault.share * self._chain.effects[name])
        is_limited = fault.kind == "disk" and name == "target"
        log = Path(os.devnull) if is_limited else self._effects(name)
        if not is_limited:
            log.unlink(missing_ok=True)
        disk = str(2048 << int(fault.share * 6)) if is_limited else ""
        process = self._chain.fork(name, command, at=at, log=log, disk=disk)
        if name == "tap":
            process.stdin.close()
        return process

    def _relay(self, source: IO[bytes], sink: IO[bytes]) -> None:
        """Pass on the messages; a cut connection ends them within one."""
        left = int(self._fault.share * 40 * self._chain.source.count)
        with contextlib.suppress(BrokenPipeError), source:
            while block := os.read(source.fileno(), 1 << 16):
                if self._fault.kind == "cut":
                    block, left = block[:left], max(0, left - len(block))
                sink.write(block)
                sink.flush()
        self._is_late.wait(LONGEST)
        with contextlib.suppress(BrokenPipeError):
            sink.close()

    def _read(self, pipe: IO[bytes]) -> None:
        self.states += (line.rstrip() for line in pipe if line.endswith(b"\n"))

    def _disturb(self, processes: Mapping[str, Forked]) -> None:
        """Wait for the moment, and do what the fault says."""
        kind, chain = self._fault.kind, self._chain
        if kind == "twin":
            self._run_twin(processes["target"])
        elif kind in {"kill", "terminate", "others", "lost"}:
            time.sleep(self._fault.share * chain.seconds * 1.1)
            if kind == "others":
                chain.insert()
            elif kind == "lost":
                assert chain.place.disconnect is not None
                chain.place.disconnect()
            for name in self._fault.who if kind in {"kill", "terminate"} else ():
                is_kill = kind == "kill"
                processes[name].send_signal(signal.SIGKILL if is_kill else signal.SIGTERM)

    def _run_twin(self, target: Forked) -> None:
        """Run both programs once more, from the same STATE, while the first run has its leases."""
        end = time.monotonic() + min(10 * self._chain.seconds, LONGEST / 2)
        while not self.states and target.poll() is None:
            if time.monotonic() > end:
                return
            time.sleep(0.02)
        if target.poll() is None:
            data, _ = self._chain.fork("tap", self._tap).communicate(b"", LONGEST)
            twin = self._chain.fork("target", self._target)
            out, log = twin.communicate(data, LONGEST)
            codes = {OVERLAP} if b'"RECORD"' in data else {OVERLAP, FINE}
            assert twin.wait() in codes, log.decode()
            covered = self._chain.source.covered
            for line in out.splitlines():  # Of a stream without new rows.
                assert covered(line) == covered(self._chain.state), log.decode()

    def check(self) -> None:
        """Check how both ended, and that no log shows a fault of the programs."""
        kind, who = self._fault.kind, self._fault.who
        may_tap, may_target = {FINE}, {FINE}
        if "tap" in who:
            may_tap |= ENDS.get(kind, set())
            may_target.add(UNREADABLE)
        if "target" in who:
            may_target |= ENDS.get(kind, set())
            may_tap |= {8, -signal.SIGPIPE} if kind != "others" else set()
        logs = b"".join(line for log in self._logs.values() for line in log).decode()
        if "ExistingObjectIsDirectory" in logs:  # versitygw removes empty folders meanwhile.
            may_target.add(STORAGE)
            may_tap |= {8, -signal.SIGPIPE}
        if kind == "others" and self._chain.settings.get("write_audit_publish"):
            may_target.add(STORAGE)
        shown = f"{self._fault}: {self.codes}\n{logs}"
        assert self.codes[0] in may_tap, shown
        assert self.codes[1] in may_target, shown
        assert "Traceback" not in logs, shown
        assert "unexpected error" not in logs, shown
