"""Work on one table over one connection, for all databases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from shared.errors import DestinationError, RecordError, SettingsError, Where
from shared.formats.schema_nodes import TEXTS
from shared.formats.spark_types import T
from shared.maps.record_metadata import DELETED_AT
from target_spark.core.balance import Committed
from target_spark.core.load_plans import Backfill, Layout, Part, TableRequest, outside_range
from target_spark.destinations.databases.database import Database
from target_spark.destinations.databases.database_tables import (
    Connection,
    Cursor,
    FoundTable,
    StagedRows,
    TablePlace,
)
from target_spark.destinations.databases.run_resources import Ledger, table_lock
from target_spark.destinations.databases.sink import PREFIX
from target_spark.destinations.databases.staged_columns import StagedColumn, staged_name
from target_spark.destinations.databases.statements import NAMES, NULL, LoadSql
from target_spark.destinations.destination import Flush, Refusal
from target_spark.tables.evolution import plan_change, without_computed
from target_spark.tables.table_changes import OURS, NameRules, TableChange, matched_names

_PLAIN = Layout()
_SAVEPOINT = "singer_rows"


@dataclass(frozen=True)
class TablePlan:
    """A table, None if it does not exist, its change, and whether others have created it."""

    existing: FoundTable | None
    change: TableChange
    is_theirs: bool = False

    @property
    def computed(self) -> Sequence[str]:
        """Return the columns of the table that the database computes."""
        return [column.name for column in self.table.columns if column.generated]

    @property
    def table(self) -> FoundTable:
        """Return the table, which must exist."""
        return self.existing or FoundTable(())

    @property
    def mapping(self) -> Mapping[str, str]:
        """Return the names of the stream's columns in the table."""
        return self.change.mapping


@dataclass(frozen=True)
class TableWork:
    """A table, the connection by which one thread reaches it, and the rules that hold.

    `conflicts` says what becomes of a column whose type changes: `fail`, `suffix` or `cast`.
    """

    database: Database
    connection: Connection
    cursor: Cursor
    place: TablePlace
    ledger: Ledger
    rules: NameRules
    conflicts: str

    @property
    def sql(self) -> LoadSql:
        """Return the statements of the database."""
        return self.database.sql

    def described(self) -> FoundTable | None:
        """Return the table as it is; None if there is none."""
        return self.database.describe(self.cursor, self.place)

    def run(self, *statements: str) -> None:
        """Run statements; empty ones are of databases that need none."""
        for statement in filter(None, statements):
            self.cursor.execute(statement)

    def first(self, query: str, arguments: Sequence[Any] | None = None) -> Any:
        """Return the first row that a query yields; None for no row."""
        self.cursor.execute(query, arguments)
        return self.cursor.fetchone()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the table against other runs; after a failure until the session ends."""
        name = table_lock(self.place)
        self.sql.lock(self.cursor, name)
        yield
        try:
            self.sql.unlock(self.cursor, name)
            self.connection.commit()
        except Exception:
            # What the block has committed stands, and must not be repeated.
            with suppress(Exception):
                self.connection.close()

    def plan(self, request: TableRequest) -> TablePlan:
        """Return the change of the table for the stream's rows.

        Raises:
            DestinationError: It cannot hold them.
        """
        return self._plan(request, self.ledger.names())

    def preview(self, request: TableRequest) -> TableChange:
        """Return the change of the table like `plan`, but in a schema that may lack a ledger.

        A table of ours that is replaced as a whole is created.
        """
        names = TablePlace(self.place.schema, NAMES)
        has_names = self.database.describe(self.cursor, names) is not None
        existing = self.ledger.names() if has_names else {}
        is_whole = request.method == "overwrite" and request.backfill is None
        if is_whole and not self._is_theirs(existing):
            return self._change(request, None, {}, self.conflicts)
        return self._plan(request, existing).change

    def is_theirs(self) -> bool:
        """Return whether others have created the table; false if there is none."""
        existing = self.ledger.names()
        present = self.described()
        return present is not None and self._is_theirs(existing)

    def _is_theirs(self, renamed: Mapping[str, str]) -> bool:
        return OURS not in renamed and not self.place.table.startswith(PREFIX)

    def _plan(self, request: TableRequest, renamed: Mapping[str, str]) -> TablePlan:
        result = self.described()
        change = self._change(request, result, renamed, self.conflicts)
        return TablePlan(result, change, result is not None and self._is_theirs(renamed))

    def alter(self, request: TableRequest, plan: TablePlan) -> TablePlan:
        """Change the table as planned and drop its index of earlier keys; return its new plan."""
        # Only a changed type moves rows; to look for them reads the whole table.
        moves = plan.change.widen or plan.change.rewrite
        with self.ledger.kept_proofs() if moves else nullcontext():
            self.run(*self._changes(request, plan))
        self.ledger.keep_names(plan.change.renamed)
        return self.plan(request)

    def conflicting(self, request: TableRequest) -> list[str]:
        """Return the table's columns that cannot hold the stream's new types."""
        result = self.described()
        if result is None:
            return []
        existing = self.ledger.names()
        names = self._names(result, request, existing)
        conflicts = []
        for wanted in request.struct:
            alone = replace(request, struct=T.StructType([wanted]), keys=(), layout=_PLAIN)
            column = names[wanted.name]
            table = FoundTable(tuple(c for c in result.columns if c.name == column))
            if table.columns:
                try:
                    self._change(alone, table, existing, "fail")
                except SettingsError:
                    conflicts.append(column)
        return conflicts

    def is_keyed(self, request: TableRequest) -> bool:
        """Return whether the table's rows are unique by the keys, or the keys are empty."""
        result = self.described() or FoundTable(())
        names = self._names(result, request, self.ledger.names())
        keys = frozenset(names[key] for key in keys_of(request))
        return not keys or keys in result.keys

    def drop_columns(self, columns: Iterable[str]) -> None:
        """Drop columns with their values."""
        self.run(*(self.sql.drop_column(self.place, column) for column in columns))

    def key(self, request: TableRequest, plan: TablePlan) -> TablePlan:
        """Make the rows unique by the keys, if they are not; return the plan with that index.

        A table of others gets no index.
        """
        keys = [plan.mapping[key] for key in keys_of(request)]
        if not keys or frozenset(keys) in plan.table.keys or plan.is_theirs:
            return plan
        nullable = {column.name for column in plan.table.columns if column.nullable}
        nulls = self.database.null_keys and bool(nullable & set(keys))
        self.run(*self.sql.unique(self.place, keys, nulls))
        return self.plan(request)

    def insert(self, request: TableRequest, plan: TablePlan, parts: Sequence[Part]) -> Committed:
        """Insert the rows of parts, in the open transaction; return what the server tells of them.

        Raises:
            DestinationError: A part has lost rows, or a key is null although it must not be.
        """
        parts = [part for part in parts if part.rows]
        if not parts:
            return Committed(0)
        rows = self.staged_rows(request, plan, tuple(part.url for part in parts))
        self._check(rows)
        sql = self.sql
        # A trigger may skip rows or route them to partitions: the number that a statement tells is
        # then not the number of rows that the table got, which the database counts for itself.
        is_watched = plan.table.has_triggers and request.method == "overwrite"
        before = sql.written(self.cursor, self.place) if is_watched else 0
        count = missing = 0
        if rows.keys:
            changed = 0
            for statement in sql.upserts(self.place, rows):
                self.cursor.execute(statement)
                # Locking tells -1.
                changed = max(0, self.cursor.rowcount)
                count += changed
            # A row that is there already has nothing to update.
            has_keys_alone = rows.values.keys() <= set(rows.keys)
            may_skip = rows.deleted is not None or bool(rows.order_by) or has_keys_alone
            is_told = sql.counts_upserts and not (rows.order_by or has_keys_alone)
            if plan.table.has_triggers and is_told:
                [expected] = self.first(sql.count_newest(rows))
                self._check_arrived(changed if rows.is_unique else count, expected, before)
            reported = count if sql.counts_upserts and rows.is_unique else None
            return Committed(reported, by_key=True, may_skip=may_skip)
        for part in parts:
            self.cursor.execute(sql.append(self.place, rows, part.url))
            taken = self.cursor.rowcount
            if taken != part.rows:
                [staged] = self.first(sql.count(TablePlace(rows.schema, part.url)))
                if staged != part.rows:
                    raise DestinationError(
                        f"a staging table has {staged} of {part.rows} rows",
                        hint="the database was restarted during the run; run again",
                    )
                missing += part.rows - taken
            count += part.rows
        if missing:
            self._check_arrived(count - missing, count, before)
        return Committed(count)

    def _check_arrived(self, changed: int, expected: int, before: int) -> None:
        """Check that rows which triggers or rules have routed elsewhere are rows of the table.

        The statement has added or updated `changed` of `expected` rows; the transaction had written
        `before` rows of the table.

        Raises:
            RecordError: The table does not have all of them.
        """
        if changed >= expected:
            return
        arrived = self.sql.written(self.cursor, self.place) - before
        if arrived < expected:
            raise RecordError(
                f"the table '{self.place.table}' has {max(changed, arrived)} of {expected} rows: "
                "its triggers or rules drop rows, or route them to other tables",
                hint="leave these records out by `stream_maps`, let the trigger take them, or load "
                "the stream into another table; no row of the flush is stored",
            )

    def check_cascades(self, how: str, hint: str) -> None:
        """Raise SettingsError if rows of other tables would go with those of the table."""
        if self.described() is None:
            return
        others = self.sql.cascades(self.cursor, self.place)
        if others:
            raise SettingsError(
                f"{how} would change rows of '{others[0]}' too: it inherits from the table "
                f"'{self.place.table}', or its foreign key to it has an action ON DELETE",
                hint=f"{hint}, or drop that foreign key or inheritance",
            )

    def bounds(self, request: TableRequest, backfill: Backfill) -> tuple[object, object]:
        """Return the bounds of a range, as arguments of a statement; see `LoadSql.bound`."""
        kind = request.struct[backfill.column].dataType
        return self.sql.bound(backfill.since, kind), self.sql.bound(backfill.until, kind)

    def empty_range(self, requests: Sequence[TableRequest], backfill: Backfill) -> None:
        """Change the table for all requests, and delete the range in the open transaction."""
        bounds = self.bounds(requests[-1], backfill)
        self.check_cascades("'--backfill'", "load the range without it, by 'upsert'")
        for request in requests:
            self.alter(request, self.plan(request))
        self.connection.commit()
        for request in requests:
            self.key(request, self.plan(request))
        column = self.plan(requests[-1]).mapping[backfill.column]
        statement = self.sql.delete_range(self.place, column)
        self.cursor.execute(statement, bounds)

    def check_range(
        self, request: TableRequest, plan: TablePlan, parts: Sequence[Part], backfill: Backfill
    ) -> None:
        """Check that all rows of parts are in the range.

        Raises:
            RecordError: One is not.
        """
        urls = tuple(part.url for part in parts if part.rows)
        if not urls:
            return
        column = plan.mapping[backfill.column]
        query = self.sql.outside_range(self.staged_rows(request, plan, urls), column)
        if self.first(query, self.bounds(request, backfill)) is not None:
            raise outside_range(backfill)

    def refusal_of(
        self, error: BaseException, request: TableRequest, plan: TablePlan, column: str = ""
    ) -> str:
        """Return what the server refuses a row for, without its values; empty for other errors.

        `column` is that at fault, if the error does not name it.
        """
        failure, keys = self.database.failure(error), keys_of(request)
        if failure is None:
            return ""
        key = plan.mapping[keys[0]] if keys else ""
        if keys and failure.code == self.sql.other_row and f"'{key}'" in failure.message:
            return (
                "the record duplicates the row of another key in a unique index of the table "
                f"'{self.place.table}' (key: {', '.join(keys)})"
            )
        column = failure.column or column
        if not failure.refusal or not column:
            return failure.refusal
        # A conversion fails with the name of the staging column.
        names = {staged_name(n): name for n, name in enumerate(request.struct.names)}
        name = (names | {stored: name for name, stored in plan.mapping.items()}).get(column, "")
        kinds = {result.name: result.sql_type for result in plan.table.columns}
        what = f"property '{name}'" if name else f"column '{column}'"
        kind = kinds.get(plan.mapping.get(name, column), "unknown")
        return f"{what}: {failure.refusal} (type {kind})"

    def refused_rows(self, request: TableRequest, parts: Sequence[Part]) -> list[Refusal]:
        """Find the rows of parts that the server refuses, and change nothing.

        Insert ever smaller ranges of them, and keep those that it takes until the end: a row may
        be refused for an earlier one. The staging tables have numbered rows and their origins.
        """
        parts = [part for part in parts if part.rows]
        for part in parts:
            self.run(*self.sql.index_rows(TablePlace(self.place.schema, part.url)))
        self.connection.commit()
        plan = self.key(request, self.plan(request))  # its index may be rolled back
        self.check_constraints()
        # Halving finds one refused row of n by some log2(n) statements, each in a savepoint.
        search = _RefusedRows(self, request, plan)
        results = [row for part in parts for row in search.of(part.url, 0, part.rows)]
        self.connection.rollback()
        return results

    def view(self, request: TableRequest, plan: TablePlan) -> None:
        """Create the view of the request."""
        self.run(*self.sql.view(self.place, request, plan.mapping, self.rules))

    def drop(self, schema: str, parts: Sequence[str]) -> None:
        """Remove staging tables."""
        drops = (self.sql.drop(TablePlace(schema, part)) for part in parts)
        self.run(self.sql.impatient, *drops, self.sql.patient)
        self.connection.commit()

    def _change(
        self, request: TableRequest, result: FoundTable | None, renamed: Mapping[str, str], how: str
    ) -> TableChange:
        request = replace(request, struct=stored_struct(request.struct))
        if result is None:
            return plan_change(None, request, self.rules, how, self.database.can, renamed)
        if result.has_rules and keys_of(request):
            raise SettingsError(
                f"the table '{self.place.table}' has a rule for INSERT or UPDATE, which would miss "
                "rows that are loaded by key",
                where=Where(setting="load_method"),
                hint="make a trigger of the rule, or load the stream with 'append-only'",
            )
        computed = {column.name for column in result.columns if column.generated}
        names = self._names(result, request, renamed)
        request = without_computed(request, names, computed, f"'{self.place.table}'")
        table, can = self._struct(result, request, renamed), self.database.can
        if self._is_theirs(renamed):
            # Numbers, and times, that a column of theirs cannot hold are for the server to refuse.
            can = replace(can, widen=lambda _old, _new: False, is_theirs=True, takes=self._takes)
            request = self._with_json(result, table, request, renamed)
        return plan_change(table, request, self.rules, how, can, renamed)

    def _with_json(
        self,
        result: FoundTable,
        table: T.StructType,
        request: TableRequest,
        renamed: Mapping[str, str],
    ) -> TableRequest:
        """Return the request in which JSON columns of others get JSON for what it is."""
        names, properties = (
            self._names(result, request, renamed),
            request.schema.get("properties", {}),
        )
        kinds = {field.name: field.dataType for field in table}
        fields = [
            T.StructField(field.name, T.VariantType(), field.nullable)
            if isinstance(kinds.get(names[field.name]), T.VariantType)
            and isinstance(field.dataType, TEXTS)
            and _is_never_text(properties.get(field.name))
            else field
            for field in request.struct
        ]
        return replace(request, struct=T.StructType(fields))

    def check_constraints(self) -> None:
        """Check constraints that wait for the end of the transaction."""
        self.run(self.sql.immediate)

    def _takes(self, old: T.DataType, new: T.DataType) -> bool:
        sql = self.sql
        is_number = sql.takes(new, sql.type_of(old))
        return is_number or isinstance(old, TEXTS) or self.database.can.takes(old, new)

    def _struct(
        self, result: FoundTable, request: TableRequest, renamed: Mapping[str, str]
    ) -> T.StructType:
        """Return the table's columns as Spark types.

        A type that stores several Spark types, or was made by others, counts as the stream's type.
        """
        sql = self.sql
        names = self._names(result, request, renamed)
        wanted = {names[field.name]: field.dataType for field in request.struct}
        struct = T.StructType()
        for column in result.columns:
            if column.generated:
                continue
            kind = wanted.get(column.name, T.StringType())
            if not sql.same_type(kind, column.sql_type):
                kind = sql.spark_type(column.sql_type) or kind
            # A trigger may fill a column that rows omit.
            is_optional = column.has_default or result.has_triggers
            metadata = {"default": True} if is_optional else None
            struct.add(T.StructField(column.name, kind, column.nullable, metadata))
        return struct

    def _names(
        self, result: FoundTable, request: TableRequest, renamed: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the table's current or future names of the stream's columns."""
        present = [column.name for column in result.columns]
        return matched_names(request.struct.names, present, self.rules, renamed)

    def _changes(self, request: TableRequest, plan: TablePlan) -> Iterator[str]:
        sql, change = self.sql, plan.change
        if change.create is not None:
            keys = [plan.mapping[key] for key in keys_of(request)]
            comment = str(request.schema.get("description") or "")
            properties = request.layout.properties
            yield from sql.create(self.place, change.create, keys, comment, properties)
            if request.layout.cluster_by:
                clustered = [plan.mapping[name] for name in request.layout.cluster_by]
                yield from sql.index(self.place, clustered)
            return
        columns = {column.name: column for column in plan.table.columns}
        for column in change.add:
            yield from sql.add(self.place, column)
        for path, _, new in change.widen:
            yield from sql.change_type(self.place, columns[path[0]], new)
        for name, new in change.rewrite:
            yield from sql.change_type(self.place, columns[name], new)
        wanted = frozenset(plan.mapping[key] for key in keys_of(request))
        if wanted and wanted not in plan.table.keys and not plan.is_theirs:
            for index in plan.table.own_keys:
                yield from sql.drop_key(self.place, index)
        for name in change.nullable:
            yield from sql.drop_not_null(self.place, columns[name])

    def staged_rows(
        self, request: TableRequest, plan: TablePlan, parts: tuple[str, ...] = ()
    ) -> StagedRows:
        """Return rows of staging tables, and how they are loaded."""
        sql, result = self.sql, plan.table
        stored = {column.name: column for column in result.columns}
        places = {name: staged_name(n) for n, name in enumerate(request.struct.names)}
        keyed = keys_of(request)
        keys = tuple(plan.mapping[key] for key in keyed)
        values: dict[str, str] = {}
        compared = dict.fromkeys(keys, NULL)
        is_whole = request.method == "overwrite"
        supplied = plan.change.supplied(request.struct.names)
        for column in plan.change.projection:
            into = stored[column.target]
            if column.source is None or column.how == "null":
                if is_whole or column.target in supplied:
                    values[column.target] = sql.without_null(NULL, into)
                continue
            expression = f"s.{places[column.source]}"
            staged = sql.type_of(request.struct[column.source].dataType)
            if column.how == "text":
                expression = sql.as_text(expression, staged)
            else:
                expression = sql.converted(expression, staged, into.sql_type)
            values[column.target] = sql.without_null(expression, into)
            if column.target in compared:
                compared[column.target] = sql.compared(expression, staged, into)
        marked = request.hard_delete and DELETED_AT in places and keyed
        nullable = frozenset(c.name for c in result.columns if c.nullable) & set(keys)
        return StagedRows(
            parts=parts,
            schema=self.place.schema,
            values=values,
            keys=keys,
            staged_keys=tuple(places[key] for key in keyed),
            compared=compared,
            nullable_keys=nullable,
            deleted=places[DELETED_AT] if marked else None,
            order_by={plan.mapping[name]: places[name] for name in request.order_by},
            # Where null keys are not matched, an index with nullable columns is no key of rows.
            is_unique=not keys
            or (frozenset(keys) in result.keys and (self.database.null_keys or not nullable)),
        )

    def _check(self, rows: StagedRows) -> None:
        sql = self.sql
        for part in rows.parts if rows.keys else ():
            if self.first(sql.is_empty(TablePlace(rows.schema, part))) is None:
                raise DestinationError(
                    "a staging table has lost its rows",
                    hint="the database was restarted during the run; run again",
                )
        if rows.keys and not self.database.null_keys and self.first(sql.null_key(rows)) is not None:
            raise SettingsError(
                f"a record has a null in its key ({', '.join(rows.keys)})",
                hint="this database cannot match null keys; load the stream with 'append-only'",
            )


def keys_of(request: TableRequest) -> tuple[str, ...]:
    """Return the key columns of the stream; empty if all rows are appended."""
    return request.keys if request.method != "append-only" else ()


def _is_never_text(node: Any) -> bool:
    """Return whether all values of a property are objects or arrays, which are staged as JSON."""
    kinds = node.get("type") if isinstance(node, dict) else None
    listed = {kinds} if isinstance(kinds, str) else set(kinds or ())
    return bool(listed) and listed <= {"object", "array", "null"}


def stored_struct(struct: T.StructType) -> T.StructType:
    """Return the columns as stored in a database: nested values as JSON."""
    nested = (T.StructType, T.ArrayType, T.MapType)
    kinds = (T.VariantType() if isinstance(f.dataType, nested) else f.dataType for f in struct)
    return T.StructType(
        [T.StructField(f.name, k, f.nullable) for f, k in zip(struct, kinds, strict=True)]
    )


def staged_columns(database: Database, struct: T.StructType) -> tuple[StagedColumn, ...]:
    """Return the columns of staging tables for a stream's rows."""
    sql = database.sql
    return tuple(
        StagedColumn(
            field.name, sql.type_of(field.dataType), sql.form_of(field.dataType), field.dataType
        )
        for field in struct
    )


def staging_tables_of(flushes: Sequence[Flush]) -> list[str]:
    """Return the staging tables of flushes."""
    return [part.url for flush in flushes for part in flush.parts]


@dataclass
class _RefusedRows:
    """The search for rows that the server refuses.

    Attributes:
        columns: Code of a failure → the column that was at fault last.
    """

    work: TableWork
    request: TableRequest
    plan: TablePlan
    columns: dict[str, str] = field(default_factory=dict)

    def of(self, part: str, first: int, last: int) -> Iterator[Refusal]:
        """Insert the rows of a part after one number, up to another; yield those refused."""
        rows = self.work.staged_rows(self.request, self.plan, (part,))
        rows = replace(rows, numbers=(first, last))
        error = self._failure(rows)
        if error is None:
            return
        if last - first > 1:
            middle = (first + last) // 2
            yield from self.of(part, first, middle)
            yield from self.of(part, middle, last)
            return
        column = self._column(rows, error)
        reason = self.work.refusal_of(error, self.request, self.plan, column)
        origin = staged_name(len(self.request.struct))
        query = self.work.sql.numbered_row(TablePlace(rows.schema, part), origin, last)
        [number] = self.work.first(query)
        yield Refusal(part, number, reason)

    def _failure(self, rows: StagedRows, *, keep: bool = True) -> Exception | None:
        """Insert rows; return why the server refuses them. Undo what failed, or is not to keep."""
        work, sql = self.work, self.work.sql
        upserts = sql.upserts(work.place, rows) if rows.keys else None
        work.run(f"SAVEPOINT {_SAVEPOINT}")
        try:
            work.run(*(upserts or [sql.append(work.place, rows, rows.parts[0])]))
        except Exception as error:
            if not work.refusal_of(error, self.request, self.plan):
                raise
            work.run(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            return error
        end = "RELEASE" if keep else "ROLLBACK TO"
        work.run(f"{end} SAVEPOINT {_SAVEPOINT}")
        return None

    def _column(self, row: StagedRows, error: Exception) -> str:
        """Return the column that the server refuses a row for, but does not name; else nothing.

        Insert each column alone: the one at fault fails in the same way.
        """
        failure = self.work.database.failure(error)
        if failure is None or failure.column or not failure.is_of_value:
            return ""
        likely = self.columns.get(failure.code)
        for name in sorted(row.values, key=lambda name: name != likely):
            alone = replace(row, values={name: row.values[name]}, keys=())
            other = self._failure(alone, keep=False)
            same = None if other is None else self.work.database.failure(other)
            if same is not None and same.code == failure.code:
                self.columns[failure.code] = name
                return name
        return ""
