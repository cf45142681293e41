"""Dead letters: input that is not loaded, kept in files.

Files of dead letters can be loaded again by `target-spark --input`. They hold Singer messages: the
SCHEMA of the stream, then each rejected record as a RECORD with one more key, `_sdc_error`, which
targets ignore. A line that is not a RECORD message is kept as a record of the stream
`sdc_dead_letters`, its text in `original`. docs/failure-policies.md shows both.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from shared.errors import DestinationError, Where
from shared.settings.texts import without_secrets
from shared.singer.messages import schema_line
from shared.storage.access import NO_OPTIONS, StorageOptions, delete, make_durable
from shared.storage.files import open_output
from shared.storage.urls import join, local_path, shown
from target_spark.convert.task_reports import original_of, read_rejects
from target_spark.core.events import LineRejected
from target_spark.core.load_plans import Batch, LoadResult, Reject
from target_spark.core.reader import loads
from target_spark.destinations.folders.table_folder import failure_hint, reason_of

STREAM = "sdc_dead_letters"
ERROR = "_sdc_error"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "original": {"type": ["string", "null"]},
        "original_base64": {"type": ["string", "null"]},
        "stream": {"type": ["string", "null"]},
        "line": {"type": ["integer", "null"]},
        "file": {"type": ["string", "null"]},
        "reason": {"type": "string"},
        "time": {"type": "string", "format": "date-time"},
    },
}
_MARK = b',"' + ERROR.encode() + b'":{'


@dataclass(eq=False)
class DeadLetters:
    """Writes files of dead letters into one folder; methods may be called from any thread.

    A file is complete and durable when a method returns, or does not exist. A repeated call
    writes the same file, so that retries do not duplicate letters.

    Args:
        path: Folder or URL.
        run_id: Makes file names unique.
        clock: Returns seconds since the epoch.
    """

    path: str
    run_id: str
    clock: Callable[[], float] = time.time
    options: StorageOptions = NO_OPTIONS

    def write(self, batch: Batch, results: Sequence[LoadResult]) -> None:
        """Write the rejected records of a flush; write nothing if there are none.

        Raises:
            DestinationError: The file cannot be written.
        """
        urls = [url for result in results for url in result.reject_files]
        if urls:
            self._write(batch.token, _batch_lines(batch, self._by_output(urls), self._now()))

    def write_lines(self, number: int, lines: Iterable[LineRejected]) -> None:
        """Write lines of input that are not messages.

        Args:
            number: Identifies the file within the run.

        Raises:
            DestinationError: The file cannot be written.
        """
        now = self._now()
        letters = (
            _letter(line.data, _why(line.reason, line.line, now), line.stream) for line in lines
        )
        schema = schema_line(STREAM, SCHEMA, (), are_letters=True)
        self._write(f"{self.run_id}-line-{number:06d}", chain([schema], letters))

    def _by_output(self, urls: Sequence[str]) -> Iterator[tuple[Reject, bytes]]:
        """Yield those of one output together: each SCHEMA closes a flush when they are loaded."""
        outputs: dict[str, None] = {}
        for reject, original in self._rejects(urls):
            if reject.output is None:
                yield reject, original
            else:
                outputs[reject.output] = None
        for output in outputs:
            yield from (pair for pair in self._rejects(urls) if pair[0].output == output)

    def _rejects(self, urls: Sequence[str]) -> Iterator[tuple[Reject, bytes]]:
        return (pair for url in urls for pair in read_rejects(url, self.options))

    def _now(self) -> str:
        return datetime.fromtimestamp(self.clock(), timezone.utc).isoformat()

    def _write(self, name: str, lines: Iterable[bytes]) -> None:
        url = join(self.path, f"{name}.jsonl")
        path = local_path(url)
        # An object appears once it is whole; a local file gets its name then.
        hidden = url if path is None else join(str(Path(path).parent), f".{name}.part")
        try:
            with open_output(hidden, options=self.options) as sink:
                sink.writelines(lines)
            if path is not None:
                make_durable(hidden)
                Path(hidden).rename(path)
                make_durable(str(Path(path).parent))
        except BaseException as error:
            # Closing has flushed the buffered lines to the file.
            with contextlib.suppress(OSError):
                delete(hidden, self.options)
            if not isinstance(error, Exception):
                raise
            reason = reason_of(error) if isinstance(error, OSError) else error
            raise DestinationError(
                f"dead letters cannot be written to '{shown(url)}': {reason}",
                where=Where(setting="failure.dead_letter_path"),
                hint=failure_hint(url, error) if isinstance(error, OSError) else "",
            ) from error


def _batch_lines(
    batch: Batch, outcome: Iterable[tuple[Reject, bytes]], now: str
) -> Iterator[bytes]:
    """Yield the dead letters of one flush; a SCHEMA before the records of a stream or output."""
    staged = {file.url for file in batch.files if file.encoding.format == "singer"}
    stream = batch.stream
    started: dict[str, bool | str] = {}
    for reject, original in outcome:
        why = _why(reject.reason, reject.line, now)
        is_staged = reject.file in staged
        if not is_staged:
            why["file"] = shown(reject.file)
        message = original if is_staged else _message(stream.stream, original, batch.version)
        line = _record(message, why)
        name = STREAM if line is None else stream.stream
        letters = True if line is None else reject.output or stream.are_letters or True
        if started.get(name) != letters:
            started[name] = letters
            keys = () if line is None else stream.key_properties
            schema = SCHEMA if line is None else stream.schema
            # Loaded again, they must not replace the rows of a table.
            yield schema_line(name, schema, keys, are_letters=letters)
        yield _letter(original, why, stream.stream) if line is None else line


def _why(reason: str, line: int | None, now: str) -> dict[str, Any]:
    return {"reason": without_secrets(reason), "line": line, "time": now}


def _message(stream: str, record: bytes, version: int | None) -> bytes:
    """Return a bare record of a batch file as a RECORD message, its text unchanged.

    Text that is not an object is returned unchanged: it could close the message and begin another.
    """
    if not isinstance(loads(record), dict):
        return record
    head = b'{"type":"RECORD","stream":' + orjson.dumps(stream) + b',"record":'
    tail = b"}" if version is None else b',"version":%d}' % version
    return head + record.strip() + tail


def _record(message: bytes, why: dict[str, Any]) -> bytes | None:
    """Return a RECORD line with its error as the last key; None if it is not a RECORD."""
    parsed = loads(message)
    if not isinstance(parsed, dict) or parsed.get("type") != "RECORD":
        return None
    if not isinstance(parsed.get("record"), dict):
        return None
    body = _without_error(message.strip())[:-1].rstrip()
    return body + b',"' + ERROR.encode() + b'":' + orjson.dumps(why) + b"}\n"


def _without_error(message: bytes) -> bytes:
    """Return the message as it was before it became a dead letter the last time."""
    start = message.rfind(_MARK)
    if start < 0:
        return message
    last = loads(b"{" + message[start + 1 :])
    return message[:start] + b"}" if isinstance(last, dict) and list(last) == [ERROR] else message


def _letter(original: bytes, why: dict[str, Any], stream: str | None) -> bytes:
    # A name may have a lone surrogate, which a JSON text in UTF-8 cannot hold.
    name = stream and stream.encode(errors="replace").decode()
    record = {**original_of(original), "stream": name, **why}
    return orjson.dumps({"type": "RECORD", "stream": STREAM, "record": record}) + b"\n"
