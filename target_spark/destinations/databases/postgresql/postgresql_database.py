"""PostgreSQL, by psycopg."""

from __future__ import annotations

import errno
import re
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from shared.errors import SettingsError, Where
from shared.formats.json_schema import holds_all
from shared.storage.access import NO_SUCH_HOST
from target_spark.destinations.databases.database import CONFLICT, LOST, Failure
from target_spark.destinations.databases.database_tables import (
    Connection,
    Cursor,
    DatabaseAddress,
    FoundColumn,
    FoundTable,
    TablePlace,
)
from target_spark.destinations.databases.postgresql.postgresql_rows import HEAD, TAIL, binary_rows
from target_spark.destinations.databases.postgresql.postgresql_sql import PostgreSqlSql
from target_spark.destinations.databases.staged_columns import StagingTable, chunks
from target_spark.destinations.databases.statements import KEY_COMMENT, LoadSql
from target_spark.tables.table_changes import Capabilities, NameRules

_SESSION = (
    "SET TIME ZONE 'UTC'; SET datestyle = 'ISO'; SET extra_float_digits = 1; "
    "SET standard_conforming_strings = on; SET idle_in_transaction_session_timeout = 0; "
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'; "
    # Operators of extensions, such as citext's `=`: without them, the server compares texts.
    "SELECT set_config('search_path', concat_ws(', ', nullif(current_setting('search_path'), ''), "
    "CASE WHEN current_schema() IS NULL THEN 'public' END, string_agg(DISTINCT "
    "quote_ident(nspname), ', ')), false) FROM pg_extension JOIN pg_namespace n ON n.oid = "
    "extnamespace WHERE nspname <> 'pg_catalog'"
)
_SYSTEM_COLUMNS = frozenset({"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"})
_NULLS_NOT_DISTINCT = 150000

_STATES: Sequence[tuple[str, int, str]] = (
    ("28", errno.EACCES, "check 'jdbc.user' and 'jdbc.password'"),
    ("3D", errno.ENOENT, "check the database's name in 'jdbc.url'"),
    ("42501", errno.EACCES, "grant the user of 'jdbc' USAGE and CREATE on the schema, and SELECT, "
     "INSERT and UPDATE on the table and on those named _singer_...; only its owner can add "
     "columns to it"),
    ("3F", errno.ENOENT, "create the schema, or check 'default_target_schema'"),
    ("40", CONFLICT, "another session held a conflicting lock"),
    ("55P03", CONFLICT, "another session held a conflicting lock"),
    ("42P01", errno.ESTALE, "the table was dropped during the run; run again"),
    ("55006", CONFLICT, "another session uses the table"),
    ("58030", errno.EIO, "the server's disk has failed; see its log"),
    ("531", errno.ENOSPC, "free some space on the server"),
    ("532", errno.ENOMEM, "the server has too little memory"),
    ("533", errno.EAGAIN, "raise the server's max_connections, or use fewer cores (spark.master)"),
    ("57P", LOST, "the server closed the connection"),
    ("08", LOST, "check host, port and network"),
    ("25006", errno.EROFS, "the server is read-only; name the primary server in 'jdbc.url'"),
    ("57014", errno.EINTR, "raise the user's statement_timeout"),
    ("54000", 0, "a value of the key is too long for an index"),
    ("23505", 0, "the table has several rows with the same key: remove them; if that is not the "
     "key of the stream, drop the unique index (it may be of earlier `key_properties`), or name "
     "its columns as `key_properties` in 'streams'"),
    ("23503", 0, "other tables refer to rows of this one: load it with 'upsert', or load first "
     "what its rows refer to"),
    ("2BP01", 0, "a view or another object needs the column; drop it and run again"),
    ("0A000", 0, "a view or another object needs the column; drop it and run again"),
)  # fmt: skip
_COPIED = re.compile(r"^COPY \S+, line \d+, column (\w+)", re.M)
"""Column of a staging table that COPY fails at."""
_REFUSALS: Sequence[tuple[str, str]] = (
    ("22001", "the value is too long for its column"),
    ("22003", "the number is out of the range of its column"),
    ("22007", "the text is no date or time of the server"),
    ("22008", "the date or time is out of the range of its column"),
    ("22P05", "the text contains a character that the server cannot store"),
    ("22021", "the text contains a character that the server cannot store"),
    ("22P02", "the text is no value of its column's type"),
    ("22", "the value does not fit its column"),
    ("23502", "the column does not take null"),
    ("23503", "the row that the record refers to is missing: foreign key"),
    ("23505", "the table has another row with this value: unique constraint"),
    ("23514", "the row does not fit a condition of the table: check constraint"),
    ("23", "the row breaks a rule of the table: constraint"),
    ("P0001", "a trigger of the table refuses the row"),
    ("45", "a trigger of the table refuses the row"),
)
"""SQLSTATEs, or their classes, of failures for what is in a row."""
_SIGNS: Sequence[tuple[str, int, str]] = (
    ("password authentication failed", errno.EACCES, "check 'jdbc.user' and 'jdbc.password'"),
    ("no password supplied", errno.EACCES, "set 'jdbc.password'"),
    ("pg_hba.conf", errno.EACCES, "the server does not admit this user from this host"),
    ('role "', errno.EACCES, "check 'jdbc.user' and 'jdbc.password'"),
    ('database "', errno.ENOENT, "check the database's name in 'jdbc.url'"),
    ("too many c", errno.EAGAIN, "raise the server's max_connections"),
    ("starting up", errno.EAGAIN, "the server is not ready yet"),
    ("Name or service not known", NO_SUCH_HOST, "check the host in 'jdbc.url'"),
    ("No address associated", NO_SUCH_HOST, "check the host in 'jdbc.url'"),
    ("resolve host", errno.EHOSTUNREACH, "check the host in 'jdbc.url'"),
    ("certificate", errno.EACCES, "check 'sslrootcert' and the server's certificate"),
    ("refused", errno.ECONNREFUSED, "check host and port in 'jdbc.url'"),
    ("timeout", errno.ETIMEDOUT, "check host, port and network"),
    ("", LOST, "check host, port and network"),
)


class PostgreSql:
    """See `Database`."""

    null_keys = True
    keeps_notes = True
    can = Capabilities(widen=holds_all, refuses_nulls=True)
    rules = NameRules(
        style="keep", max_bytes=63, forbidden="\0", reserved=_SYSTEM_COLUMNS, ignore_case=False
    )

    def __init__(self) -> None:
        self.sql: LoadSql = PostgreSqlSql()

    def connect(self, place: DatabaseAddress) -> Connection:
        try:
            import psycopg  # noqa: PLC0415
        except ImportError as error:
            raise SettingsError(
                "loading into PostgreSQL needs the package psycopg",
                where=Where(setting="jdbc.url"),
                hint="pip install 'singer-spark[postgresql]'",
            ) from error
        supplied: dict[str, Any] = {
            "connect_timeout": "10",
            "application_name": "target-spark",
            "keepalives": "1",
        }
        connection = psycopg.connect(
            host=",".join(place.hosts),
            port=",".join(map(str, place.ports)),
            dbname=place.name,
            user=place.user,
            password=place.password,
            client_encoding="utf8",
            prepare_threshold=None,
            **{**supplied, **dict(place.properties)},
        )
        connection.execute(_SESSION)
        self.null_keys = connection.info.server_version >= _NULLS_NOT_DISTINCT
        connection.commit()
        return connection

    def stage(
        self, connection: Connection, stage: StagingTable, tables: Iterator[pa.Table]
    ) -> tuple[int, int]:
        """See `Database`: COPY in the binary format, made column by column."""
        rows = size = 0
        with connection.cursor() as cursor:
            cursor.execute(self.sql.create_stage(stage))
            with cursor.copy(
                f"COPY {self.sql.table(stage.place)} FROM STDIN (FORMAT binary)"
            ) as copy:
                copy.write(HEAD)
                for count, data in _ahead(chunks(tables), stage):
                    copy.write(data)
                    rows += count
                    size += len(data)
                copy.write(TAIL)
        return rows, size

    def describe(self, cursor: Cursor, table: TablePlace) -> FoundTable | None:
        cursor.execute(_RELATION, (table.schema, table.table))
        result = cursor.fetchone()
        if result is None:
            return None
        number, kind, has_triggers, has_rules = result
        if kind not in {"r", "p"}:
            raise SettingsError(
                f"'{table.table}' is not a table that can be loaded into",
                hint="a view or another object has this name; rename it or set 'table_prefix'",
            )
        cursor.execute(_COLUMNS, (number,))
        columns = tuple(FoundColumn(*row) for row in cursor.fetchall())
        nullable = {column.name for column in columns if column.nullable}
        cursor.execute(_KEYS_15 if self.null_keys else _KEYS, (number,))
        indexes = cursor.fetchall()
        keys = (
            frozenset(names)
            for names, nulls_equal, *_ in indexes
            if nulls_equal or not nullable & set(names)
        )
        own = (name for _, _, name, comment in indexes if comment == KEY_COMMENT)
        return FoundTable(columns, frozenset(keys), tuple(own), has_triggers, has_rules)

    def failure(self, error: BaseException) -> Failure | None:
        import psycopg  # noqa: PLC0415

        if not isinstance(error, psycopg.Error):
            return None
        state = error.sqlstate or ""
        message = error.diag.message_primary or str(error).strip().partition("\n")[0]
        if isinstance(error, psycopg.OperationalError) and not state:
            fits = [result for result in _SIGNS if result[0] in str(error)]
        else:
            fits = [result for result in _STATES if state.startswith(result[0])]
        _, number, hint = fits[0] if fits else ("", 0, "")
        refusal = next((text for code, text in _REFUSALS if state.startswith(code)), "")
        if state == "23503" and message.startswith("update or delete"):
            refusal = ""  # rows of other tables refer to one that goes
        if state == "42501" and error.diag.source_function == "ExecWithCheckOptions":
            refusal = "a row-level security policy of the table refuses the row"
        if refusal:
            rule = error.diag.constraint_name
            refusal = f"{refusal}{f' {rule!r}' if rule else ''} [{state}]"
        return Failure(
            message or type(error).__name__,
            state,
            number,
            hint,
            refusal=refusal,
            is_of_value=state.startswith("22"),
            column=error.diag.column_name or "".join(_COPIED.findall(error.diag.context or "")),
        )


_RELATION = (
    "SELECT c.oid, c.relkind::text, c.relhasrules OR EXISTS (SELECT FROM pg_trigger t WHERE "
    "t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgtype & 3 = 3 AND t.tgenabled <> 'D'), "
    "EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = c.oid AND r.ev_type IN ('2', '3')) "
    "FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace "
    "WHERE s.nspname = %s AND c.relname = %s"
)
# The type below domains, also of an array's elements: a cast to a domain rounds and cuts silently.
_STORED = (
    "(WITH RECURSIVE b(kind, typmod, suffix, n) AS (SELECT atttypid, atttypmod, '', 0 UNION ALL "
    "SELECT CASE typtype WHEN 'd' THEN typbasetype ELSE typelem END, CASE typtype WHEN 'd' THEN "
    "typtypmod ELSE -1 END, suffix || CASE typtype WHEN 'd' THEN '' ELSE '[]' END, n + 1 FROM b "
    "JOIN pg_type ON oid = kind WHERE typtype = 'd' OR (typcategory = 'A' AND EXISTS (SELECT FROM "
    "pg_type e WHERE e.oid = pg_type.typelem AND e.typtype = 'd'))) SELECT "
    "format_type(kind, typmod) || suffix FROM b ORDER BY n DESC LIMIT 1)"
)
_COLUMNS = (
    "SELECT attname, STORED, NOT (attnotnull OR typnotnull), atthasdef "
    "OR attidentity <> '' OR typdefault IS NOT NULL, attgenerated <> '', "
    "coalesce((SELECT format('%%I.%%I', nspname, collname) FROM pg_collation l JOIN pg_namespace s "
    "ON s.oid = collnamespace WHERE l.oid = attcollation AND collname <> 'default'), '') "
    "FROM pg_attribute JOIN pg_type t ON t.oid = atttypid WHERE attrelid = %s AND attnum > 0 "
    "AND NOT attisdropped ORDER BY attnum"
).replace("STORED", _STORED, 1)
_KEYS_15 = (
    "SELECT (SELECT array_agg(a.attname::text) FROM pg_attribute a WHERE a.attrelid = i.indrelid "
    "AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])), i.indnullsnotdistinct, "
    "c.relname, obj_description(c.oid, 'pg_class') FROM pg_index i "
    "JOIN pg_class c ON c.oid = i.indexrelid "
    "WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate "
    "AND i.indpred IS NULL AND i.indexprs IS NULL"
)
_KEYS = _KEYS_15.replace("i.indnullsnotdistinct", "true")


def _ahead(
    batches: Iterator[pa.RecordBatch], stage: StagingTable
) -> Iterator[tuple[int, memoryview]]:
    """Yield numbers of rows with their bytes; some are made while those before them are sent."""
    rows = 0
    with ThreadPoolExecutor(1) as pool:
        held: deque[tuple[int, Future[memoryview]]] = deque()
        for batch in batches:
            before = rows if stage.numbered else None
            held.append((batch.num_rows, pool.submit(binary_rows, batch, stage.columns, before)))
            rows += batch.num_rows
            if len(held) > 1:
                count, created = held.popleft()
                yield count, created.result()
        for count, created in held:
            yield count, created.result()
