"""What tasks report to the driver: parts, counts, rejected records and errors.

The first rejected records of a task are reported, all are written to a file on their way to the
dead letters. It has one JSON object a line: `file`, `line`, `reason`, `output`, and the record's
text as received: `original`, or `original_base64` if it is not Unicode text.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import orjson
import pyarrow as pa

from shared.errors import MessageError, RecordError, SettingsError, Where
from shared.formats.columnar_encoding import merged_facts
from shared.formats.file_formats import read_lines
from shared.spark.spark_errors import SHARED_FOLDER
from shared.storage.access import NO_OPTIONS, StorageOptions, make_durable
from shared.storage.files import open_output
from shared.storage.urls import join, shown
from target_spark.core.load_plans import Batch, LoadResult, Part, Reject
from target_spark.destinations.destination import RefusedByStoreError
from target_spark.destinations.folders.table_folder import read_error, write_error


def reject_line(reject: Reject, original: bytes) -> bytes:
    """Return a rejected record as one line.

    Args:
        original: A line of standard input or of a batch file, or a row of it as a JSON object.
    """
    return orjson.dumps({**vars(reject), **original_of(original)}) + b"\n"


def original_of(line: bytes) -> dict[str, str]:
    """Return the text of a rejected line or row, in base64 if it is not Unicode text."""
    text = line.rstrip(b"\r\n")
    try:
        return {"original": text.decode()}
    except UnicodeDecodeError:
        return {"original_base64": base64.b64encode(text).decode()}


def read_rejects(url: str, options: StorageOptions | None = None) -> Iterator[tuple[Reject, bytes]]:
    """Yield what `reject_line` wrote into a file, in bounded memory."""
    for block in read_lines(url, options=options):
        for line in block.splitlines():
            outcome = orjson.loads(line)
            text = outcome.get("original")
            original = (
                base64.b64decode(outcome["original_base64"]) if text is None else text.encode()
            )
            yield Reject(*map(outcome.get, ("file", "line", "reason", "output"))), original


MAX_REJECTS = 100
"""Rejected records of one task that are reported; further ones are only counted."""
MAX_UNDECLARED = 20
"""Properties without a place in the SCHEMA that are reported."""


@dataclass
class Rejects:
    """Rejected records of one task, in bounded memory.

    Attributes:
        folder: Folder for all of them with their text, or None.
        read: Records that the task has read.
        undeclared: Properties that the SCHEMA lacks, each with the number of values seen.
        cut: Properties with times whose digits below microseconds are cut.
    """

    folder: str | None = None
    options: StorageOptions = NO_OPTIONS
    read: int = 0
    undeclared: dict[str, int] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    reported: list[Reject] = field(default_factory=list)
    count: int = 0
    _url: str = ""
    _file: pa.NativeFile | None = None

    def add(self, reject: Reject, original: bytes) -> None:
        """Add one record."""
        if reject.output is not None:
            reject = replace(reject, reason=f"output {reject.output!r}: {reject.reason}")
        self.count += 1
        if len(self.reported) < MAX_REJECTS:
            self.reported.append(reject)
        if self.folder is not None:
            if self._file is None:
                self._url = join(self.folder, f"rejects-{uuid.uuid4().hex}")
                self._file = open_output(self._url, options=self.options)
            self._file.write(reject_line(reject, original))

    def add_undeclared(self, name: str, count: int) -> None:
        """Count values of a property that the SCHEMA lacks."""
        if name in self.undeclared or len(self.undeclared) < MAX_UNDECLARED:
            self.undeclared[name] = self.undeclared.get(name, 0) + count

    def rows(self) -> list[dict[str, Any]]:
        """Return the result rows: the first records, the totals, and the file, which is durable."""
        rows: list[dict[str, Any]] = [{"kind": "read", "rows": self.read}] if self.read else []
        rows += [
            {"kind": "undeclared", "rows": count, "text": name}
            for name, count in self.undeclared.items()
        ]
        rows += [{"kind": "cut", "text": name} for name in sorted(self.cut)]
        if not self.count:
            return rows
        rows += [
            {"kind": "reject", "url": reject.file, "rows": reject.line, "text": reject.reason}
            for reject in self.reported
        ]
        if self._file is not None:
            self._file.close()
            self._file = None
            make_durable(self._url)
            rows.append({"kind": "reject file", "url": self._url})
        return [*rows, {"kind": "rejected", "rows": self.count}]


Row = Mapping[str, Any]


def result_of(rows: Sequence[Row], batch: Batch) -> LoadResult:
    """Return the result of a job, rejected records in the order of their lines."""
    of = defaultdict[str, list[Row]](list)
    for row in rows:
        of[row["kind"]].append(row)
    parts = tuple(Part(row["url"], row["rows"], row["size"]) for row in of["part"])
    facts = [json.loads(row["text"]) for row in of["part"] if row["text"]]
    undeclared = Counter[str]()
    for row in of["undeclared"]:
        undeclared[row["text"]] += row["rows"]
    order = {file.url: position for position, file in enumerate(batch.files)}
    rejects = [Reject(row["url"], row["rows"], row["text"]) for row in of["reject"]]
    rejects.sort(key=lambda reject: (order.get(reject.file, 0), reject.line))
    return LoadResult(
        parts=parts,
        rows=sum(part.rows for part in parts),
        rejects=tuple(rejects[:MAX_REJECTS]),
        rejected=sum(row["rows"] for row in of["rejected"]),
        received=sum(row["rows"] for row in of["read"]),
        columns=columns_of(facts) if len(facts) == len(parts) else {},
        reject_files=tuple(row["url"] for row in of["reject file"]),
        exploded=sum(row["rows"] for row in of["exploded"]),
        cut=frozenset(row["text"] for row in of["cut"]),
        undeclared=dict(undeclared),
    )


def columns_of(facts: Sequence[Mapping[str, list[Any]]]) -> dict[str, list[Any]]:
    """Return the facts of columns that all of some files know."""
    names = set(facts[0]).intersection(*facts[1:]) if facts else set()
    return {name: reduce(merged_facts, (one[name] for one in facts)) for name in sorted(names)}


def raise_failure(rows: Iterable[Row], where: Where) -> None:
    """Raise the permanent failure of a task, if there is one.

    Raises:
        DestinationError: A part could not be written, or the storage of a file failed or does not
            answer: its cause is an OSError.
        SettingsError: Rows cannot be divided into folders, or columns cannot get other types.
        RefusedByStoreError: The store refuses a row.
        MessageError: A file could not be read.
    """
    for row in rows:
        if row["kind"] == "error":
            cause = OSError(row["rows"], row["text"], row["url"])
            raise write_error(row["url"], cause) from cause
        if row["kind"] == "refused by store":
            raise RefusedByStoreError(row["text"])
        if row["kind"] == "conflict":
            hint = "load it under another name or into another table"
            raise SettingsError(row["text"], where=where, hint=hint)
        if row["kind"] == "refused":
            raise SettingsError(
                row["text"],
                where=replace(where, setting="partition_by"),
                hint="partition by a column with fewer and shorter values, or load a lake table",
            )
        if row["kind"] == "unreachable":
            cause = OSError(row["rows"], row["text"], row["url"])
            raise read_error(row["url"], cause, where) from cause
        if row["kind"] == "unreadable":
            missing = os.strerror(errno.ENOENT) in row["text"]
            raise MessageError(
                f"the file '{shown(row['url'])}' cannot be read: {row['text']}",
                where=where,
                hint=SHARED_FOLDER if missing else "",
            )


def record_error(batch: Batch, result: LoadResult) -> RecordError:
    """Return the error for the first record that does not fit, with the number of others."""
    first = result.rejects[0]
    many = result.rejected > 1
    hint = f"{result.rejected} records of this batch do not fit" if many else ""
    return RecordError(first.reason, where=batch.where(first), hint=hint)
