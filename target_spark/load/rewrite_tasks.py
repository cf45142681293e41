"""Executors' work to rewrite files of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from shared.arrow_start import arrow_in_task
from shared.formats.file_formats import FORMATS
from shared.storage.files import StorageOptions, make_durable
from shared.types.arrow_conform import conform
from target_spark.load.load_tasks import WritePlan, chained, failure, numbers_of, results
from target_spark.tables.version_edit import VersionEdit


@dataclass(frozen=True)
class RewritePlan:
    """Files to rewrite.

    Attributes:
        pairs: Old and new URL of each.
        write: The new columns.
        edit: The change of their rows; files that it does not change are not written.
    """

    pairs: Sequence[tuple[str, str]]
    write: WritePlan
    edit: VersionEdit | None = None


def rewrite(plan: RewritePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a part for every file that was written or has become empty; for `mapInArrow`."""
    arrow_in_task()
    for number in numbers_of(batches):
        source, target = plan.pairs[number]
        try:
            rows = _rewritten(plan, source, target)
        except pa.ArrowInvalid as error:
            rows = [{"kind": "unreadable", "url": source, "text": str(error)}]
        except OSError as error:
            rows = [failure(error, plan.write.pending)]
        yield results(rows)


def _rewritten(plan: RewritePlan, source: str, target: str) -> list[dict[str, Any]]:
    name = plan.write.encoding.format
    options = plan.write.options
    if plan.edit is not None and (
        plan.edit.keeps_file(source, name, options)
        or not _changes(plan.edit, source, name, options)
    ):
        return []
    columns = _columns(plan.write)
    rows = 0

    def tables() -> Iterator[pa.Table]:
        nonlocal rows
        for table in FORMATS[name].read(source, options):
            edited = plan.edit.apply(table, name)[0] if plan.edit else table
            rows += edited.num_rows
            yield conform(edited, columns)

    kept = _first_rows(tables())
    if kept is None and plan.edit is not None:
        return [{"kind": "part", "url": target, "rows": 0, "size": 0}]
    FORMATS[name].write(target, columns, kept or (), plan.write.encoding.compression, options)
    make_durable(target)
    return [{"kind": "part", "url": target, "rows": rows, "size": 0}]


def _changes(edit: VersionEdit, source: str, name: str, options: StorageOptions) -> bool:
    return any(edit.apply(table, name)[1] for table in FORMATS[name].read(source, options))


def _columns(write: WritePlan) -> pa.Schema:
    """Return the columns between reader and writer."""
    if FORMATS[write.encoding.format].flat:
        return pa.schema([(name, pa.string()) for name in write.columns.names])
    if FORMATS[write.encoding.format].text:
        return pa.schema([("value", pa.string())])
    return write.columns


def _first_rows(tables: Iterator[pa.Table]) -> Iterator[pa.Table] | None:
    """Return the tables from the first one with rows on; None if all are empty."""
    for table in tables:
        if table.num_rows:
            return chained(table, tables)
    return None
