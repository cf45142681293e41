"""Tables of databases beside the staged rows of a run: compared and repaired by the server.

The staged rows first go into a table like the real one, by the statements of a load: both sides
then have the values that the table stores.
"""

# ruff: noqa: S608 - names are quoted, values are arguments or quoted literals.
from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812

from shared.maps.record_metadata import DELETED_AT, METADATA
from target_spark.core.differences import (
    CHANGED,
    DOUBLED,
    MISSING,
    VANISHED,
    TableDifference,
    Verification,
)
from target_spark.core.load_plans import TableRequest, without_column
from target_spark.destinations.databases.database_destination import repeated_in_session, swap_names
from target_spark.destinations.databases.database_tables import (
    Cursor,
    FoundTable,
    StagedRows,
    TablePlace,
)
from target_spark.destinations.databases.run_resources import Ledger
from target_spark.destinations.databases.table_work import TableWork, staging_tables_of
from target_spark.destinations.destination import Flush
from target_spark.destinations.operations import Operations, missing_table

if TYPE_CHECKING:
    from target_spark.destinations.databases.database_destination import JdbcDestination
    from target_spark.destinations.databases.statements import LoadSql

_ARGUMENT = "\0"
"""Place of an argument in a statement; no name of a column has this character."""
Counts = tuple[dict[str, int], dict[str, str]]


@dataclass(frozen=True)
class _PassingNames(Ledger):
    """A ledger whose new names of columns are those of a table that is dropped again."""

    added: dict[str, str] = field(default_factory=dict)

    def names(self) -> dict[str, str]:
        return {**super().names(), **self.added}

    def keep_names(self, mapping: Mapping[str, str]) -> None:
        self.added.update(mapping)


@dataclass(frozen=True)
class ComparedColumn:
    """A column that both sides have.

    Attributes:
        source_type: Its type in the table of the run's rows, which may be wider.
        table_type: Its type in the real table.
    """

    name: str
    source_type: str
    table_type: str


@dataclass(frozen=True)
class StagedComparison:
    """Both sides, and the table for what differs.

    Attributes:
        source: Table of the run's rows, one for each key.
        differences: Place of the table for the keys that differ.
        columns: All compared columns.
        ranges: Number of ranges of hashed keys.
        deleted: Column that marks rows as deleted, if the table has one.
        kinds: The kinds of differences that count.
        bounds: Those of the range of the table that is compared; None for all of it. A row with a
            key of the run is compared in any case.
        part_column: The column of the range in the table.
    """

    sql: LoadSql
    cursor: Cursor
    source: TablePlace
    table: TablePlace
    differences: TablePlace
    keys: Sequence[ComparedColumn]
    columns: Sequence[ComparedColumn]
    ranges: int
    deleted: str | None
    kinds: Sequence[str]
    bounds: tuple[object, object] | None
    part_column: str

    def difference(
        self, stream: str, shown: str, missing_columns: tuple[str, ...] = ()
    ) -> TableDifference:
        """Compare both sides, as `RowComparison.difference` does by Spark."""
        self._run(self._sums())
        sums = {int(row[0]): tuple(map(int, row[1:])) for row in self.cursor.fetchall()}
        rows = {number: (ours, theirs) for number, (ours, theirs, _, _) in sums.items()}
        differing = sorted(number for number, (_, _, *hashes) in sums.items() if len({*hashes}) > 1)
        return TableDifference.of(stream, shown, rows, self._counted(differing), missing_columns)

    def repair(
        self, rows: StagedRows, repaired: Sequence[str], at: float, *, hard_delete: bool
    ) -> None:
        """Change the rows that differ, in the open transaction.

        `rows` names the columns that the run sets, and the keys; `at` is the time for the mark of
        deleted rows, in seconds since the epoch, unless they are deleted (`hard_delete`).
        """
        sql, table = self.sql, self.sql.table(self.table)
        if VANISHED in repaired:
            gone = f"{self._key_digest(table=True)} IN ({self._chosen(VANISHED)})"
            if hard_delete:
                self.cursor.execute(f"DELETE FROM {table} WHERE {gone}")
            else:
                time = datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")
                mark = sql.name(self.deleted or DELETED_AT)
                change = f"UPDATE {table} SET {mark} = {sql.instant(time)}"
                self.cursor.execute(f"{change} WHERE {mark} IS NULL AND {gone}")
        renewed = [kind for kind in (MISSING, CHANGED) if kind in repaired]
        if renewed:
            types = {column.name: column for column in self.columns}
            columns = {name: f"d.{sql.name(name)}" for name in rows.values}
            columns |= {
                name: sql.converted(value, types[name].source_type, types[name].table_type)
                for name, value in columns.items()
                if name in types
            }
            wanted = f"{self._key_digest(table=False)} IN ({self._chosen(*renewed)})"
            differing = f"(SELECT * FROM {sql.table(self.source)} WHERE {wanted}) d"
            for statement in self._renewal(rows, columns, differing):
                self.cursor.execute(statement)

    def _renewal(
        self, rows: StagedRows, columns: Mapping[str, str], differing: str
    ) -> Sequence[str]:
        """Return the statements that upsert the rows `d`."""
        sql = self.sql
        if not rows.is_unique:
            keys = {key: columns[key] for key in rows.keys}
            return sql.merge_from(self.table, keys, columns, differing)
        into = f"{sql.table(self.table)} ({sql.names(list(columns))}){sql.overriding}"
        values = ", ".join(columns.values())
        # `WHERE true`: otherwise MySQL takes ON for the condition of a join.
        select = f"SELECT {values} FROM {differing} WHERE true"
        return [f"INSERT INTO {into} {select} {sql.on_conflict(self.table, rows)}"]

    def _counted(self, ranges: Sequence[int]) -> dict[int, Counts]:
        """Keep the keys that differ; return their number of each kind, and one of them."""
        text = self.sql.type_of(T.StringType())
        result = self.sql.table(self.differences)
        self.cursor.execute(self.sql.drop(self.differences))
        # A server may look for each row of the table in it: that needs an index.
        columns = f"r integer, k char(32) PRIMARY KEY, kind varchar(8), example {text}"
        self.cursor.execute(f"CREATE TABLE {result} ({columns}){self.sql.options}")
        if not ranges:
            return {}
        self._run(f"INSERT INTO {result} (r, k, kind, example) {self._differences(ranges)}")
        counts_of = "SELECT r, kind, count(*), min(example)"
        self.cursor.execute(f"{counts_of} FROM {result} GROUP BY r, kind")
        counted: dict[int, Counts] = {}
        for number, kind, count, example in self.cursor.fetchall():
            counts, examples = counted.setdefault(number, ({}, {}))
            counts[kind], examples[kind] = count, example
        return counted

    def _sums(self) -> str:
        """Select rows and sums of hashes of both sides, for each range."""
        number = self.sql.number("h")
        theirs = f"SELECT r, 0 AS s, 1 AS t, {number} AS h FROM ({self._hashed(True)}) t"
        ours = f"SELECT r, 1 AS s, 0 AS t, {number} AS h FROM ({self._hashed(False)}) s"
        sums = "sum(s), sum(t), sum(h * s), sum(h * t)"
        inside = " WHERE inside = 1"
        return f"SELECT r, {sums} FROM ({ours} UNION ALL {theirs}{inside}) b GROUP BY r"

    def _differences(self, ranges: Sequence[int]) -> str:
        """Select the keys that differ, with range and kind."""
        chosen = f" WHERE r IN ({', '.join(map(str, ranges))})"
        ours = "SELECT r, k, 1 AS s, 0 AS t, h AS hs, NULL AS ht, example, inside"
        theirs = "SELECT r, k, 0 AS s, 1 AS t, NULL AS hs, h AS ht, example, inside"
        both = (
            f"{ours} FROM ({self._hashed(False)}) s{chosen} "
            f"UNION ALL {theirs} FROM ({self._hashed(True)}) t{chosen}"
        )
        kind = (
            f"CASE WHEN sum(t) = 0 THEN '{MISSING}' WHEN sum(s) = 0 THEN '{VANISHED}' "
            f"WHEN sum(t) > 1 THEN '{DOUBLED}' WHEN max(hs) <> max(ht) THEN '{CHANGED}' END"
        )
        keys = (
            f"SELECT min(r) AS r, k, {kind} AS kind, min(example) AS example "
            f"FROM ({both}) b GROUP BY k HAVING max(inside) = 1"
        )
        kinds = ", ".join(f"'{one}'" for one in self.kinds)
        return f"SELECT r, k, kind, example FROM ({keys}) g WHERE kind IN ({kinds})"

    def _hashed(self, table: bool) -> str:
        """Select range, digests of key and row, and the key as text, of one side."""
        row = self.sql.digest([self._value(column, table=table) for column in self.columns])
        example = self.sql.example([column.name for column in self.keys])
        place = self.sql.table(self.table if table else self.source)
        kept = f" WHERE {self.sql.name(self.deleted)} IS NULL" if self.deleted else ""
        rows = (
            f"SELECT {self._key_digest(table=table)} AS k, {row} AS h, {example} AS example, "
            f"{self._inside if table else '1'} AS inside FROM {place}{kept}"
        )
        number = f"mod({self.sql.number('k')}, {self.ranges})"
        return f"SELECT k, {number} AS r, h, example, inside FROM ({rows}) x"

    @property
    def _inside(self) -> str:
        if self.bounds is None:
            return "1"
        name = self.sql.name(self.part_column)
        return f"CASE WHEN {name} >= {_ARGUMENT} AND {name} < {_ARGUMENT} THEN 1 ELSE 0 END"

    def _key_digest(self, *, table: bool) -> str:
        return self.sql.digest([self._value(column, table=table) for column in self.keys])

    def _value(self, column: ComparedColumn, *, table: bool) -> tuple[str, str]:
        """Return the value of a column, with the type of the source, and that type."""
        name, kind = self.sql.name(column.name), column.source_type
        is_same = not table or column.table_type == kind
        return name if is_same else self.sql.retyped(name, kind), kind

    def _chosen(self, *kinds: str) -> str:
        listed = ", ".join(f"'{kind}'" for kind in kinds)
        return f"SELECT k FROM {self.sql.table(self.differences)} WHERE kind IN ({listed})"

    def _run(self, statement: str) -> None:
        if self.bounds is None:
            self.cursor.execute(statement)
            return
        statement = statement.replace("%", "%%").replace(_ARGUMENT, "%s")
        self.cursor.execute(statement, self.bounds)


@dataclass
class DatabaseOperations(Operations):
    """See `Operations`."""

    destination: JdbcDestination

    @repeated_in_session
    def verify(self, flushes: Sequence[Flush], wanted: Verification) -> None:
        destination, request = self.destination, flushes[-1].request
        with destination.work(request) as work, work.locked():
            shown = destination.table(request.name).shown
            result = verify_table(work, flushes, wanted, shown, time.time())
            work.connection.commit()
        destination.drop_staging(request, [*staging_tables_of(flushes), *swap_names(work)])
        wanted.report(result)


def verify_table(
    work: TableWork, held: Sequence[Flush], wanted: Verification, shown: str, at: float
) -> TableDifference:
    """Compare the rows of flushes with the table; repair what differs, if that is wanted.

    The caller commits and drops the tables of `swap_names`.

    `at` is the time for the mark of deleted rows, in seconds since the epoch.

    Raises:
        DestinationError: The table does not exist.
        DifferenceError: A repair would delete too many rows; `wanted` has been given what differs.
    """
    requests = list({one.write.struct.json(): one.request for one in held}.values())
    last = requests[-1]
    if wanted.repair and not wanted.deletes:
        for request in requests:
            work.alter(request, work.plan(request))
        work.connection.commit()
    table = work.described()
    if table is None:
        raise missing_table(f"the table '{work.place.table}'", last.stream, repairs=True)
    filled = _filled(work, requests, held)
    sides, missing = _sides(work, filled, last, table, wanted)
    result = sides.difference(last.stream, shown, missing)
    repaired = _repaired(work, last, sides, wanted, result)
    if repaired:
        if VANISHED in repaired:
            wanted.check_vanished(result)
        if set(repaired) != {VANISHED}:
            work.key(last, work.plan(last))
        # As for an upsert: columns that the stream lacks keep their values.
        rows = filled.staged_rows(replace(last, method="upsert"), filled.plan(last))
        # What the source has counts, whatever `upsert_order_by` says.
        rows = replace(rows, order_by={}, deleted=None, is_unique=work.is_keyed(last))
        sides.repair(rows, repaired, at, hard_delete=last.hard_delete)
    return replace(result, repaired=repaired)


def _filled(work: TableWork, requests: Sequence[TableRequest], held: Sequence[Flush]) -> TableWork:
    """Return work on a table like the real one, with the rows of the run."""
    place = TablePlace(work.place.schema, swap_names(work)[0])
    ledger = _PassingNames(work.database, work.cursor, work.place, work.ledger.run)
    created = replace(work, place=place, ledger=ledger)
    work.run(work.sql.drop(place), work.sql.copy(place, work.place))
    for request in requests:
        created.alter(request, created.plan(request))
    for request in requests:
        created.key(request, created.plan(request))
    for flush in held:
        plan = created.plan(flush.request)
        if flush.request.backfill is not None:
            created.check_range(flush.request, plan, flush.parts, flush.request.backfill)
        created.insert(flush.request, plan, flush.parts)
    return created


def _sides(
    work: TableWork,
    filled: TableWork,
    request: TableRequest,
    table: FoundTable,
    wanted: Verification,
) -> tuple[StagedComparison, tuple[str, ...]]:
    """Return both sides, and the stream's columns that the table lacks."""
    plan = filled.plan(request)
    types = {column.name: column.sql_type for column in table.columns}
    wider = {column.name: column.sql_type for column in plan.table.columns}
    own = {name: plan.mapping[name] for name in request.struct.names}
    columns = [
        ComparedColumn(name, wider[name], types[name])
        for source, name in own.items()
        if name in types and not source.startswith(METADATA)
    ]
    names = {plan.mapping[key] for key in request.keys}
    keys = [column for column in columns if column.name in names]
    deleted = own.get(DELETED_AT)
    part = request.backfill
    if part is not None and plan.mapping[part.column] not in types:
        raise without_column(part, f"the table '{work.place.table}'")
    lacking = (
        source
        for source, name in own.items()
        if name not in types and not source.startswith(METADATA)
    )
    sides = StagedComparison(
        work.sql,
        work.cursor,
        filled.place,
        work.place,
        TablePlace(work.place.schema, swap_names(work)[1]),
        keys,
        keys if wanted.deletes else columns,
        wanted.ranges,
        deleted if deleted in types else None,
        wanted.kinds,
        None if part is None else work.bounds(request, part),
        "" if part is None else plan.mapping[part.column],
    )
    return sides, () if wanted.deletes else tuple(lacking)


def _repaired(
    work: TableWork,
    request: TableRequest,
    sides: StagedComparison,
    wanted: Verification,
    difference: TableDifference,
) -> tuple[str, ...]:
    """Return the kinds of differences that are repaired; none if nothing differs."""
    if not wanted.repair or not difference.ranges:
        return ()
    can_delete = request.hard_delete or sides.deleted is not None
    kinds = wanted.repaired(can_delete=can_delete, part=request.backfill is not None)
    if difference.count(DOUBLED) and not work.is_keyed(request):
        # Without unique keys, an upsert does not find its rows.
        return tuple(kind for kind in kinds if kind == VANISHED)
    return kinds
