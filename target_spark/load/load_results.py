"""Results of tasks on the driver, as results and errors of a batch."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from shared.errors import MessageError, RecordError, SettingsError, Where
from shared.formats.parquet_profile import merged
from shared.spark.spark_errors import SHARED_FOLDER
from shared.storage.urls import shown
from target_spark.core.load_plans import Batch, LoadResult, Part, Reject
from target_spark.destinations.destination import RefusedByStoreError
from target_spark.destinations.folders.folder_failures import read_error, write_error
from target_spark.load.reject_files import MAX_REJECTS

Row = Mapping[str, Any]


def result_of(rows: Sequence[Row], batch: Batch) -> LoadResult:
    """Return the result of a job, rejected records in the order of their lines."""
    parts = tuple(Part(row["url"], row["rows"], row["size"]) for row in _of("part", rows))
    facts = [json.loads(row["text"]) for row in _of("part", rows) if row["text"]]
    order = {file.url: position for position, file in enumerate(batch.files)}
    rejects = [Reject(row["url"], row["rows"], row["text"]) for row in _of("reject", rows)]
    rejects.sort(key=lambda reject: (order.get(reject.file, 0), reject.line))
    return LoadResult(
        parts=parts,
        rows=sum(part.rows for part in parts),
        rejects=tuple(rejects[:MAX_REJECTS]),
        rejected=sum(row["rows"] for row in _of("rejected", rows)),
        received=sum(row["rows"] for row in _of("read", rows)),
        columns=columns_of(facts) if len(facts) == len(parts) else {},
        reject_files=tuple(row["url"] for row in _of("reject file", rows)),
        exploded=sum(row["rows"] for row in _of("exploded", rows)),
        cut=frozenset(row["text"] for row in _of("cut", rows)),
        undeclared=summed({row["text"]: row["rows"]} for row in _of("undeclared", rows)),
    )


def summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of counts by name."""
    total = Counter[str]()
    for one in counts:
        total.update(one)
    return dict(total)


def columns_of(facts: Sequence[Mapping[str, list[Any]]]) -> dict[str, list[Any]]:
    """Return the facts of columns that all of some files know."""
    names = set(facts[0]).intersection(*facts[1:]) if facts else set()
    return {name: reduce(merged, (one[name] for one in facts)) for name in sorted(names)}


def raise_failure(rows: Iterable[Row], where: Where) -> None:
    """Raise the permanent failure of a task, if there is one.

    Raises:
        DestinationError: A part could not be written, or the storage of a file failed or does not
            answer: its cause is an OSError.
        SettingsError: Rows cannot be divided into folders.
        RefusedByStoreError: The store refuses a row.
        MessageError: A file could not be read.
    """
    for row in rows:
        if row["kind"] == "error":
            cause = OSError(row["rows"], row["text"], row["url"])
            raise write_error(row["url"], cause) from cause
        if row["kind"] == "refused by store":
            raise RefusedByStoreError(row["text"])
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
    staged = any(file.url == first.file and file.line_map for file in batch.files)
    where = Where(
        stream=batch.source,
        file=None if staged else shown(first.file),
        line=first.line,
    )
    many = result.rejected > 1
    hint = f"{result.rejected} records of this batch do not fit" if many else ""
    return RecordError(first.reason, where=where, hint=hint)


def _of(kind: str, rows: Iterable[Row]) -> Iterable[Row]:
    return (row for row in rows if row["kind"] == kind)
