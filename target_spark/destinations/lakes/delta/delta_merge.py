"""MERGE into Delta tables on a local disk in Arrow: only files that hold a key are rewritten.

Only for tables that `is_plain_table` accepts. First the keys of files are read that may hold
one of the flush. In memory are the rows of the flush, a number for each row of the table whose key
was read, and for each thread a row group. Tasks of Spark have the same for their own files; they
get only the keys of a flush whose parts become files of the table.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heapreplace
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from shared.engine.engine import Runs, Work
from shared.formats.arrow_types import conform, spark_to_arrow
from shared.formats.columnar_encoding import dictionary_paths
from shared.formats.line_encodings import ROW_GROUP_BYTES, TABLE_ROWS, grouped
from shared.singer.platform import arrow_in_task, usable_cores
from shared.storage.urls import local_path
from target_spark.core.load_plans import Part
from target_spark.destinations.lakes.delta.delta_files import (
    Transactions,
    apart,
    check_unchanged,
    file_stats,
    has_transaction,
    is_append_only,
    is_committed,
    remove_files,
)
from target_spark.destinations.lakes.lake_format import NeedsSparkError
from target_spark.destinations.lakes.lake_sql import MergePlan
from target_spark.destinations.lakes.lake_table import LakeTable
from target_spark.destinations.lakes.lake_work import first_of
from target_spark.destinations.lakes.small_flush import (
    MOST_BYTES,
    merged_once,
    places,
    rows_of_parts,
)

MOST_REWRITTEN = 1 << 30
"""Tasks of Spark write more bytes of files anew."""

LINKED_BYTES = 32 << 20
"""Parts of more bytes become files of the table unchanged, if they can."""

_SCAN_ROWS = 1 << 20
"""Rows whose keys are looked up at once: each time a table of the flush's keys is made."""
_MOST_NUMBERED = 1 << 26
"""Rows of the table that one program numbers: 4 bytes each. Tasks of Spark number more together."""
_BUFFER_BYTES = 256 << 10
"""What is read ahead of each column; else all of a row group would be in memory."""
_SMALL_BYTES = 128 << 20
"""A file of fewer bytes takes new rows as well."""
_TASKS_PER_CORE = 4
"""Each task makes a table of the flush's keys; one of some files may take longer than another."""
_ENGINE = "target-spark"
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class StoredFile:
    """A file of the table, with its bytes and rows.

    `matches` has for each row the row of the flush that has its key, or null.
    """

    path: Path
    size: int
    rows: int
    matches: pa.Array


@dataclass(frozen=True)
class Changed:
    """A file that was written, or None if it would have no rows, and its numbers of rows.

    `updated` rows of the table have new values, and `deleted` ones are gone.
    """

    path: Path | None
    rows: int
    updated: int = 0
    deleted: int = 0


def merge_rows(
    folder: str,
    parts: Sequence[Part],
    now: LakeTable,
    plan: MergePlan,
    keys: int,
    metadata: str,
    transactions: Transactions,
    tasks: Runs | None = None,
) -> int | None:
    """Merge parts into a table in one commit: the newest row of each key.

    Args:
        parts: Parts on the same disk, with the table's columns.
        keys: Number of different keys.
        metadata: That of the commit.
        tasks: Runs tasks of Spark that read and write files of the table; None for threads.

    Returns:
        The rows that were inserted, updated or deleted; None if the table has this transaction.

    Raises:
        NeedsSparkError: It is too large, or only Spark can read what the table has; nothing was
            committed.
        LostCommit: The table has other columns or rules by now.
        deltalake.exceptions.CommitFailedError: Others have committed meanwhile.
    """
    if is_append_only(now):
        raise NeedsSparkError

    def link() -> int | None:
        rows = rows_of_parts(parts, [key.column for key in plan.keys], MOST_BYTES)
        return _committed(folder, rows, now, plan, metadata, transactions, tasks, parts)

    def rewrite() -> int | None:
        # Delta's MERGE fails if two rows of the source match one row of the table: only the newest
        # of each key is left.
        rows = merged_once(parts, plan, keys, MOST_BYTES)
        if any(not field.nullable and field.name not in rows.column_names for field in now.struct):
            raise NeedsSparkError  # which says so
        return _committed(folder, rows, now, plan, metadata, transactions, tasks)

    # Linked parts need Spark if the table has a key more than once.
    return first_of(link, rewrite) if _can_link(parts, now, plan, keys) else rewrite()


def _committed(
    folder: str,
    rows: pa.Table,
    now: LakeTable,
    plan: MergePlan,
    metadata: str,
    transactions: Transactions,
    tasks: Runs | None,
    linked: Sequence[Part] = (),
) -> int | None:
    """Merge rows, of which no two have one key; see `merge_rows` and `_Change`."""
    from deltalake import DeltaTable  # noqa: PLC0415

    table = Path(local_path(folder) or folder)
    opened = DeltaTable(str(table))
    if has_transaction(opened, transactions):
        return None
    check_unchanged(opened, now)
    schema = pa.schema([(field.name, spark_to_arrow(field.dataType)) for field in now.struct])
    # 1. Write new files beside the table's: no reader sees a file before the log names it.
    change = _Change(table, conform(rows, schema).combine_chunks(), plan, linked)
    try:
        files, results, inserted = change.write(opened, tasks)
        metrics = {
            "numTargetRowsInserted": inserted,
            "numTargetRowsUpdated": sum(result.updated for result in results),
            "numTargetRowsDeleted": sum(result.deleted for result in results),
        }
        reported = {**metrics, "numTargetFilesRemoved": len(files)}
        # 2. One commit removes the old files from the table and adds the new ones. The old stay on
        #    disk for readers of older versions, until VACUUM.
        begin = _begin(metadata, transactions, reported)
        _commit(table, opened.version() + 1, [*begin, *_actions(table, files, results)])
    except BaseException as error:
        # 3. Remove what no commit names: a signal may come right after the commit.
        names = [path.name for path in table.glob(f"part-{change.name}-*")]
        if not is_committed(table, opened.version(), names):
            remove_files(table, names)
        if isinstance(error, pa.ArrowInvalid | pa.ArrowNotImplementedError | pa.ArrowTypeError):
            raise NeedsSparkError from error
        raise
    _add_checkpoint(table, opened.version() + 1, now)
    return sum(metrics.values())


class KeyPlaces:
    """Finds the rows of a table of keys, no two of which are equal; null is a value like others."""

    def __init__(self, rows: pa.Table) -> None:
        # A key of several columns becomes one number, column by column: the distinct values of a
        # column get codes, and (code of the columns before, code of this one) is again a value that
        # gets a code. So each step is one hash lookup of a whole column in Arrow.
        first, *others = rows.columns
        # A key of one column needs no `unique`: its rows are distinct, so the code is the row.
        values = first.unique() if others else first.combine_chunks()
        self._steps = [(values, values)]
        codes = pc.index_in(first, values)
        for number, column in enumerate(others, 1):
            values = column.unique()
            pairs = _pairs(codes, column, values)
            is_last = number == len(others)
            distinct = pairs.combine_chunks() if is_last else pairs.unique()
            self._steps.append((values, distinct))
            codes = pc.index_in(pairs, distinct)

    def find(self, keys: pa.Table) -> pa.ChunkedArray:
        """Return for each key the row that has it, as `int32`; null for none."""
        (first, _), *others = self._steps
        codes = pc.index_in(keys.column(0), first)
        for column, (values, distinct) in zip(keys.columns[1:], others, strict=True):
            codes = pc.index_in(_pairs(codes, column, values), distinct)
        return codes


def _pairs(codes: pa.ChunkedArray, column: pa.ChunkedArray, values: pa.Array) -> pa.ChunkedArray:
    """Return one number for each pair of a code and a value; null if there is no such pair."""
    wide = pc.multiply(codes.cast(pa.int64()), len(values))
    return pc.add(wide, pc.index_in(column, values).cast(pa.int64()))


@dataclass(frozen=True)
class _Change:
    """A flush, and the folder of the table that it changes.

    Attributes:
        rows: The rows of the flush, with all columns of the table; of each key the newest.
        linked: Parts that become files of the table, so that only the keys of `rows` count.
        name: In the names of files that are written.
    """

    table: Path
    rows: pa.Table
    plan: MergePlan
    linked: Sequence[Part] = ()
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def write(self, opened: Any, tasks: Runs | None) -> tuple[list[StoredFile], list[Changed], int]:
        """Write the files of the change; return those they replace, them, and the rows inserted."""
        written = self._in_threads(opened) if tasks is None else self._in_tasks(opened, tasks)
        files, results, new, inserted = written
        if self.linked:
            results += map(self._link, self.linked)
        elif new.num_rows:
            results.append(self._written(iter([new])))
        # Every row that went in comes out or is counted as deleted. A key that the table has twice
        # breaks this if a linked part replaces both of its rows; Spark's MERGE updates both.
        before = sum(file.rows for file in files) + inserted
        if before != sum(result.rows + result.deleted for result in results):
            raise NeedsSparkError
        return files, results, inserted

    def _in_threads(self, opened: Any) -> tuple[list[StoredFile], list[Changed], pa.Table, int]:
        """Write files anew; return them, the new ones, rows left to add, and those to insert.

        The smallest file takes the new rows if it is small.
        """
        with ThreadPoolExecutor(usable_cores(), "merge") as pool:
            keys = self._keys
            # 1. Read only the columns of keys, of files whose bounds may hold one.
            matched = partial(self._matched, KeyPlaces(keys), keys.schema)
            shares = _shares(self._candidates(opened, _MOST_NUMBERED), usable_cores())
            files = [file for share in pool.map(matched, shares) for file in share]
            # 2. What no file has is new; the commit's metrics count it.
            new = self._new_rows(files)
            if not self._rewrites:
                files = []
            if sum(file.size for file in files) > MOST_REWRITTEN:
                raise NeedsSparkError
            # 3. Rewrite these files. A small one also takes the new rows, so that frequent small
            #    flushes do not leave a small file each.
            files.sort(key=lambda file: file.size)
            joins = bool(files) and files[0].size <= _SMALL_BYTES and not self.linked
            extra = [new if joins and not number else None for number in range(len(files))]
            results = list(pool.map(self._rewritten, files, extra))
        return files, results, new.slice(new.num_rows) if joins else new, new.num_rows

    def _in_tasks(
        self, opened: Any, tasks: Runs
    ) -> tuple[list[StoredFile], list[Changed], pa.Table, int]:
        """Do the same in tasks of Spark, of which each has some of the files."""
        shares = _shares(self._candidates(opened), _TASKS_PER_CORE * usable_cores())
        work = Work(None, 0, reports="result binary")
        reports = tasks.run(partial(_each, self._share, shares), len(shares), work)
        pairs = [pair for report in reports for pair in _result(report["result"])]
        files = [file for file, _ in pairs]
        new = self._new_rows(files)
        replaced = [(file, result) for file, result in pairs if result is not None]
        return [f for f, _ in replaced], [r for _, r in replaced], new, new.num_rows

    def _share(self, share: Sequence[tuple[Path, int]]) -> list[tuple[StoredFile, Changed | None]]:
        """Write the files of a task anew that have a key; they keep the rows of the flush."""
        keys = self._keys
        return [
            (
                # The driver needs the rows of the flush that were hit, not one number for each row.
                replace(file, matches=file.matches.drop_null().unique()),
                self._rewritten(file, None) if self._rewrites else None,
            )
            for file in self._matched(KeyPlaces(keys), keys.schema, share)
        ]

    @property
    def _keys(self) -> pa.Table:
        return self.rows.select([key.column for key in self.plan.keys])

    @property
    def _rewrites(self) -> bool:
        """Return whether rows of the table change."""
        return bool(self.plan.update or self.plan.deleted)

    def _candidates(self, opened: Any, most: float = inf) -> Iterator[tuple[Path, int]]:
        """Yield the files that may hold a key of the flush, with their sizes.

        Raise NeedsSparkError if files of the table are in other folders, or have more than `most`
        rows.
        """
        files = pa.table(opened.get_add_actions(flatten=True))
        for key in self.plan.keys:
            # Bounds of the log (`stats`) tell files that hold no key of the flush: a MERGE into a
            # table that is sorted by key reads few of them. Files without bounds stay.
            files = files.filter(pc.invert(apart(files, key)))
        if (pc.sum(files["num_records"]).as_py() or 0) > most:
            raise NeedsSparkError
        for name, size in zip(
            files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True
        ):
            path = self.table / name
            if "%" in name or name.startswith("/") or not path.exists():
                raise NeedsSparkError  # those of a shallow clone, or names that the log encodes
            yield path, size

    @staticmethod
    def _matched(
        places: KeyPlaces, keys: pa.Schema, share: Sequence[tuple[Path, int]]
    ) -> list[StoredFile]:
        """Return the files that have a key of the flush."""
        held, rows = list[tuple[int, pa.Table]](), 0
        matches: list[list[pa.Array]] = [[] for _ in share]

        def look_up() -> None:
            numbers = places.find(pa.concat_tables(table for _, table in held))
            start = 0
            for number, table in held:
                matches[number] += numbers.slice(start, table.num_rows).chunks
                start += table.num_rows
            held.clear()

        for number, (path, _) in enumerate(share):
            for table in _stored_rows(path, keys):
                held.append((number, table))
                rows += table.num_rows
                if rows >= _SCAN_ROWS:
                    look_up()
                    rows = 0
        # Files are looked up together, as a table of Arrow's for the keys costs the same for a few
        # rows as for a million.
        if held:
            look_up()
        files = [
            StoredFile(path, size, sum(map(len, one)), pa.concat_arrays(one))
            for (path, size), one in zip(share, matches, strict=True)
            if one
        ]
        return [file for file in files if file.matches.null_count < file.rows]

    def _new_rows(self, files: Sequence[StoredFile]) -> pa.Table:
        """Return the rows of the flush whose keys the table lacks."""
        matches = [file.matches.drop_null().unique() for file in files]
        numbers = pa.chunked_array(matches, pa.int32()).cast(pa.int64())
        rows = self.rows.filter(pc.invert(pc.is_in(places(self.rows), numbers)))
        if self.plan.deleted is not None:
            rows = rows.filter(pc.is_null(rows[self.plan.deleted]))
        return rows

    def _rewritten(self, file: StoredFile, new: pa.Table | None) -> Changed:
        """Write a file anew, with new rows at its end."""
        counts = [0, 0]

        def tables() -> Iterator[pa.Table]:
            start = 0
            for rows in _stored_rows(file.path, self.rows.schema):
                yield from self._applied(rows, file.matches.slice(start, len(rows)), counts)
                start += len(rows)
            if start != file.rows:
                raise NeedsSparkError
            if new is not None:
                yield new

        result = self._written(tables())
        return Changed(result.path, result.rows, *counts)

    def _applied(self, rows: pa.Table, matches: pa.Array, counts: list[int]) -> Iterator[pa.Table]:
        """Yield rows of the table as the flush changes them; add to those updated and deleted."""
        plan = self.plan
        if plan.order_by:
            # A row that is older than the table's does not change it: its match is dropped.
            ranks = [table.select(list(plan.order_by)) for table in (self.rows, rows)]
            new, old = ranks[0].take(matches), ranks[1]
            pairs = [
                (one.combine_chunks(), other.combine_chunks())
                for one, other in zip(new.columns, old.columns, strict=True)
            ]
            matches = pc.if_else(_not_older(pairs), matches, pa.scalar(None, matches.type))
        hits = pc.is_valid(matches)
        if not matches.null_count < len(matches):
            yield rows
            return
        # Rows without a match keep their order; those with one follow, with new values.
        yield rows.filter(pc.invert(hits))
        if self.linked:
            # The new values are in a part that becomes a file as it is: the old rows only go.
            counts[0] += len(matches) - matches.null_count
            return
        old, new = rows.filter(hits), self.rows.take(matches.drop_null())
        if plan.deleted is not None:
            kept = pc.is_null(new[plan.deleted])
            old, new = old.filter(kept), new.filter(kept)
            counts[1] += len(kept) - len(old)
        if plan.update:
            counts[0] += len(old)
            names = set(plan.update)
            old = pa.table(
                [(new if name in names else old)[name] for name in old.column_names],
                schema=old.schema,
            )
        yield old

    def _link(self, part: Part) -> Changed:
        """Make a part a file of the table; raise NeedsSparkError if it is on another disk."""
        path = self.table / f"part-{self.name}-{uuid.uuid4()}.parquet"
        try:
            os.link(local_path(part.url) or part.url, path)
        except OSError as error:
            raise NeedsSparkError from error
        return Changed(path, parquet.read_metadata(path).num_rows)

    def _written(self, tables: Iterator[pa.Table]) -> Changed:
        """Write a file, without bounds of floats: NaN, the greatest for Spark, is not in them."""
        path = self.table / f"part-{self.name}-{uuid.uuid4()}.snappy.parquet"
        groups = grouped((table for table in tables if table.num_rows), ROW_GROUP_BYTES)
        first = next(groups, None)
        if first is None:
            return Changed(None, 0)
        with parquet.ParquetWriter(
            path,
            first.schema,
            compression="snappy",
            use_dictionary=dictionary_paths(first),
            write_statistics=[field.name for field in first.schema if _has_bounds(field.type)],
            coerce_timestamps="us",
            version="2.6",
        ) as writer:
            rows = 0
            for group in chain([first], groups):
                writer.write_table(group, max(1, group.num_rows))
                rows += group.num_rows
        return Changed(path, rows)


def _can_link(parts: Sequence[Part], now: LakeTable, plan: MergePlan, keys: int) -> bool:
    """Return whether parts become files of the table: large ones, whose rows set all columns."""
    is_whole = set(now.struct.names) <= {*plan.update, *(key.column for key in plan.keys)}
    is_each = keys == sum(part.rows for part in parts) and not (plan.deleted or plan.order_by)
    return is_whole and is_each and sum(part.size for part in parts) > LINKED_BYTES


def _has_bounds(kind: pa.DataType) -> bool:
    return not (pa.types.is_floating(kind) or pa.types.is_nested(kind))


def _each(
    work: Callable[[_Item], Any], items: Sequence[_Item], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield what work on items of these numbers returns or raises, pickled; for `mapInArrow`."""
    arrow_in_task()
    for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
        try:
            result = work(items[number])
        except Exception as error:
            result = error
        yield pa.record_batch({"result": pa.array([pickle.dumps(result)], pa.binary())})


def _result(data: bytes) -> Any:
    """Return what `_each` has pickled, or raise it."""
    result = pickle.loads(data)  # noqa: S301 - from a task of ours
    if isinstance(result, Exception):
        raise result
    return result


def _shares(files: Iterator[tuple[Path, int]], count: int) -> list[list[tuple[Path, int]]]:
    """Divide files among so many threads or tasks."""
    shares: list[list[tuple[Path, int]]] = [[] for _ in range(count)]
    sizes = [(0, number) for number in range(count)]
    for file in sorted(files, key=lambda file: -file[1]):
        size, number = sizes[0]
        shares[number].append(file)
        heapreplace(sizes, (size + file[1], number))
    return [share for share in shares if share]


def _stored_rows(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a file, with the columns of a schema."""
    with parquet.ParquetFile(
        path, coerce_int96_timestamp_unit="us", buffer_size=_BUFFER_BYTES
    ) as file:
        stored = set(file.schema_arrow.names)
        names = [name for name in schema.names if name in stored]
        for batch in file.iter_batches(TABLE_ROWS, columns=names, use_threads=False):
            yield conform(pa.Table.from_batches([batch]), schema)


def _not_older(pairs: Sequence[tuple[pa.Array, pa.Array]]) -> pa.Array:
    """Return whether new values are not older than old ones, like `table_changes.not_older`."""
    (new, old), *rest = pairs
    if not rest:
        return pc.or_(pc.fill_null(pc.greater_equal(new, old), False), pc.is_null(old))
    newer = pc.or_(
        pc.fill_null(pc.greater(new, old), False), pc.and_(pc.is_null(old), pc.is_valid(new))
    )
    both = pc.and_(pc.is_null(new), pc.is_null(old))
    equal = pc.or_(pc.fill_null(pc.equal(new, old), False), both)
    return pc.or_(newer, pc.and_(equal, _not_older(rest)))


def _actions(
    table: Path, files: Sequence[StoredFile], results: Sequence[Changed]
) -> Iterator[dict[str, Any]]:
    """Yield what a commit says about files that leave the table, and that become files of it."""
    at = int(time.time() * 1000)
    for file in files:
        gone = {"path": file.path.relative_to(table).as_posix(), "size": file.size}
        yield {
            "remove": {
                **gone,
                "deletionTimestamp": at,
                "dataChange": True,
                "extendedFileMetadata": True,
                "partitionValues": {},
            }
        }
    for path in (result.path for result in results if result.path is not None):
        yield {
            "add": {
                "path": path.name,
                "partitionValues": {},
                "size": path.stat().st_size,
                "modificationTime": at,
                "dataChange": True,
                "stats": json.dumps(file_stats(str(path))),
            }
        }


def _begin(
    metadata: str, transactions: Transactions, metrics: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    at = int(time.time() * 1000)
    yield {
        "commitInfo": {
            "timestamp": at,
            "operation": "MERGE",
            "operationParameters": {},
            "isBlindAppend": False,
            "operationMetrics": {name: str(count) for name, count in metrics.items()},
            "engineInfo": _ENGINE,
            "userMetadata": metadata,
        }
    }
    for application, version in transactions.items():
        yield {"txn": {"appId": application, "version": version, "lastUpdated": at}}


def _commit(table: Path, version: int, actions: Sequence[Mapping[str, Any]]) -> None:
    """Make a version of a table; raise CommitFailedError if others have made it meanwhile."""
    from deltalake.exceptions import CommitFailedError  # noqa: PLC0415

    log = table / "_delta_log"
    draft = log / f".{uuid.uuid4()}.tmp"
    try:
        draft.write_text("".join(json.dumps(action) + "\n" for action in actions))
        # A link, as a rename would replace the commit of another writer: it fails if the version
        # exists. The Delta protocol ("Delta Log Entries") asks for nothing else on a local disk.
        os.link(draft, log / f"{version:020d}.json")
    except FileExistsError:
        raise CommitFailedError(f"version {version} exists") from None
    finally:
        with suppress(OSError):
            draft.unlink()


_INTERVAL = "delta.checkpointInterval"


def _add_checkpoint(table: Path, version: int, now: LakeTable) -> None:
    """Add a checkpoint, of which the table has one for some commits; it is complete without it."""
    interval = now.properties.get(_INTERVAL, "")
    # Writers may have set any text: as without one, by the default.
    if version % (int(interval) if re.fullmatch("0*[1-9][0-9]*", interval) else 10):
        return
    from deltalake import DeltaTable  # noqa: PLC0415
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    with suppress(DeltaError, OSError):
        DeltaTable(str(table), version=version).create_checkpoint()
