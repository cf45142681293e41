"""The real target, killed at moments that a seed chooses, over messages that are always alike."""

from __future__ import annotations

import contextlib
import gzip
import json
import queue
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from model_source import line_of

from target_spark.replays import Bookmarks

COUNT, STEP, KEYS = 4_000, 300, 500
ADDED, KEPT, REPLACED, PLAIN = "added", "kept", "replaced", "plain"
LONGEST = 240.0
Seen = Mapping[str, Callable[[], int]]
AFTER = ("commit", "state", "commit", "start")
NUMBER = {"type": ["integer", "null"]}
SCHEMAS = {
    ADDED: {"properties": {"n": NUMBER, "t": {"type": ["string", "null"]}}},
    KEPT: {"properties": {"id": {"type": "integer"}, "n": NUMBER}},
}
WHOLE = 1_000
# By these the stream that is replaced has columns of other types each time.
KINDS = (NUMBER, {"type": ["string", "null"]})


def messages(folder: Path, first: int = 0) -> bytes:
    """Return records of both streams in turn, from a STATE on, and a STATE after every 300.

    Of every three such lots the last one comes as a BATCH message for each stream.

    Args:
        folder: For the files of these.
        first: The STATE.
    """
    heads = [
        {"type": "SCHEMA", "stream": name, "schema": schema, "key_properties": keys}
        for (name, schema), keys in zip(SCHEMAS.items(), ([], ["id"]), strict=True)
    ]
    sent = [*heads]
    for start in range(first, COUNT, STEP):
        numbers = range(start, min(start + STEP, COUNT))
        is_batch = start // STEP % 3 == 2
        sent += _batches(folder, numbers) if is_batch else map(_record_message, numbers)
        sent.append(state_message(ADDED, numbers[-1] + 1))
    return b"".join(map(line_of, sent))


def replacement(folder: Path, nth: int) -> bytes:
    """Return all records of the stream that is replaced, half of them in a BATCH message.

    Args:
        folder: For its file.
        nth: Which records.
    """
    folder.mkdir(exist_ok=True)
    schema = {"properties": {"id": {"type": "integer"}, "n": KINDS[nth]}}
    file, records = folder / f"{REPLACED}-{nth}", replaced(nth)
    file.write_bytes(b"".join(map(line_of, records[: WHOLE // 2])))
    head = {"type": "SCHEMA", "stream": REPLACED, "schema": schema, "key_properties": ["id"]}
    sent = [{"type": "RECORD", "stream": REPLACED, "record": one} for one in records[WHOLE // 2 :]]
    # Shows that the stream is complete.
    end = {"type": "ACTIVATE_VERSION", "stream": REPLACED, "version": 1}
    return b"".join(map(line_of, [head, _batch(file, "jsonl", "none"), *sent, end]))


def replaced(nth: int) -> list[dict[str, Any]]:
    return [{"id": key, "n": (key, f"new {key}")[nth]} for key in range(WHOLE)]


def state_message(stream: str, at: int) -> dict[str, Any]:
    return {"type": "STATE", "value": {"at": at, "bookmarks": {stream: {"at": at}}}}


def noted(note: str, stream: str, end: int = COUNT) -> int | None:
    """Return the STATE that a note begins with, by its anchor; None if there is no note."""
    anchor = json.loads(note)[0] if note else None
    states = ((at, state_message(stream, at)["value"]) for at in range(0, end + 1, 100))
    actual = (at for at, value in states if Bookmarks(orjson.dumps(value)).digest(stream) == anchor)
    return next(actual, None) if anchor else None


def _record_message(number: int) -> dict[str, Any]:
    return {"type": "RECORD", "stream": (ADDED, KEPT)[number % 2], "record": record(number)}


def _batches(folder: Path, numbers: range) -> Iterator[dict[str, Any]]:
    """Yield a message for each stream: a file of Parquet, and one of JSON lines."""
    folder.mkdir(exist_ok=True)
    added, kept = (folder / f"{name}-{numbers[0]}" for name in (ADDED, KEPT))
    pq.write_table(pa.Table.from_pylist([record(n) for n in numbers if n % 2 == 0]), added)
    lines = b"".join(line_of(record(n)) for n in numbers if n % 2)
    kept.write_bytes(gzip.compress(lines, mtime=0))
    yield _batch(added, "parquet", "none")
    yield _batch(kept, "jsonl", "gzip")


def _batch(file: Path, form: str, compression: str) -> dict[str, Any]:
    kind = {"format": form, "compression": compression}
    stream = file.name.partition("-")[0]
    return {"type": "BATCH", "stream": stream, "encoding": kind, "manifest": [str(file)]}


def record(number: int) -> dict[str, Any]:
    if number % 2 == 0:
        return {"n": number, "t": f"row {number}"}
    key = number * 7919 % KEYS
    marked = {"_sdc_deleted_at": "2024-01-01T00:00:00Z"} if number % 11 == 0 else {}
    return {"id": key, "n": number, **marked}


def added() -> list[int]:
    return list(range(0, COUNT, 2))


def kept() -> dict[int, int]:
    actual: dict[int, int] = {}
    for number in range(1, COUNT, 2):
        supplied = record(number)
        actual.pop(supplied["id"], None)
        if "_sdc_deleted_at" not in supplied:
            actual[supplied["id"]] = number
    return actual


@dataclass(frozen=True)
class Moment:
    """When a run is killed: so long after so many STATE lines, commits or new files.

    Others can see the latter two.
    """

    after: str
    count: int
    seconds: float


def moments(chance: random.Random, seed: int) -> list[Moment]:
    """Return one to three moments; the first seed's is right after a commit."""
    return [_moment(chance, AFTER[(seed + nth) % len(AFTER)]) for nth in range(1 + seed % 3)]


def _moment(chance: random.Random, after: str) -> Moment:
    if after == "start":
        return Moment(after, 0, chance.uniform(0, 20))
    # The table being made is a commit, too. A STATE follows its commit within milliseconds.
    count = chance.randint(3, 6) if after == "commit" else chance.randint(1, 4)
    seconds = chance.choice([0.0, chance.uniform(0, 0.02), chance.uniform(0, 0.8)])
    return Moment(after, count, seconds)


def moment_of_replacing(chance: random.Random) -> Moment:
    """Return a moment before, while or right after new rows replace the old ones."""
    if chance.random() < 0.5:
        return Moment("file", 1, chance.uniform(0, chance.choice([0.0, 0.3, 4.0])))
    return Moment("commit", chance.randint(1, 2), chance.choice([0.0, chance.uniform(0, 0.2)]))


@dataclass(frozen=True)
class Ended:
    """What a run left.

    Attributes:
        code: How it ended; None where it was killed.
        states: Every STATE line.
        log: Its log.
    """

    code: int | None
    states: Sequence[int]
    log: str


def run(command: Sequence[str], data: bytes, cwd: Path, kill: Moment | None, seen: Seen) -> Ended:
    """Run the target on messages; kill it at the moment, if the moment comes.

    Args:
        command: Of the target.
        data: The messages.
        cwd: Folder to run in.
        kill: When; None to let it end.
        seen: Tell how many commits and files others see.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    states: queue.Queue[int] = queue.Queue()
    log: list[str] = []
    threads = [
        threading.Thread(target=_send, args=(process.stdin, data)),
        threading.Thread(target=_states, args=(process.stdout, states)),
        threading.Thread(target=_log, args=(process.stderr, log)),
    ]
    for thread in threads:
        thread.start()
    try:
        is_killed = kill is not None and _wait(process, kill, states, seen)
        if is_killed:
            process.kill()
        code = process.wait(LONGEST)
    finally:
        process.kill()
        for thread in threads:
            thread.join(30)
    return Ended(None if is_killed else code, list(states.queue), "".join(log))


def _wait(process: Any, kill: Moment, states: queue.Queue[int], seen: Seen) -> bool:
    """Wait for the moment; return False if the run ends before."""
    end = time.monotonic() + LONGEST
    count = {"start": lambda: 0, "state": states.qsize, **seen}[kill.after]
    before = count()
    while time.monotonic() < end and process.poll() is None:
        if count() - before >= kill.count:
            time.sleep(kill.seconds)
            return process.poll() is None
        time.sleep(0.005)
    return False


def _send(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        pipe.write(data)
    with contextlib.suppress(BrokenPipeError):
        pipe.close()


def _states(pipe: IO[bytes], states: queue.Queue[int]) -> None:
    for line in pipe:
        states.put(json.loads(line)["at"])


def _log(pipe: IO[bytes], log: list[str]) -> None:
    for line in pipe:
        log.append(line.decode(errors="replace"))
