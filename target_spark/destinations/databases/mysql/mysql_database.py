"""MySQL and MariaDB, by PyMySQL."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.errors import DestinationError, SettingsError, Where
from shared.formats.json_schema import holds_all
from shared.formats.spark_types import T
from shared.storage.access import NO_SUCH_HOST, is_unknown_host
from target_spark.destinations.databases.database import CONFLICT, LOST, Failure
from target_spark.destinations.databases.database_tables import (
    Connection,
    Cursor,
    DatabaseAddress,
    FoundColumn,
    FoundTable,
    TablePlace,
)
from target_spark.destinations.databases.mysql.mysql_sql import NO_NULL, MySqlSql
from target_spark.destinations.databases.staged_columns import (
    StagedColumn,
    StagingTable,
    chunks,
    numbers,
    sendable,
    staged_source,
)
from target_spark.destinations.databases.statements import KEY_COMMENT, NULL, LoadSql, literal
from target_spark.destinations.destination import RefusedByStoreError
from target_spark.tables.table_changes import Capabilities, NameRules

_SESSION = (
    "SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,"
    # Else the server replaces 0 by a new number.
    "NO_AUTO_VALUE_ON_ZERO', "
    "transaction_isolation = 'READ-COMMITTED', "
    # A server may limit all queries, and deletions of all rows.
    "sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_safe_updates = 0, "
    # Idle sessions hold locks of the run.
    "wait_timeout = 604800"
)
_SESSION_MARIADB = _SESSION.replace("transaction_isolation", "tx_isolation")
_TEXT = pa.large_string()

_NUMBERS: Mapping[int, tuple[int, str]] = {
    **dict.fromkeys((1045, 1698), (errno.EACCES, "check 'jdbc.user' and 'jdbc.password'")),
    **dict.fromkeys((1044, 1142, 1143, 1227),
                    (errno.EACCES, "grant the user of 'jdbc' all rights on the database")),
    1129: (errno.EACCES, "the server blocks this host: FLUSH HOSTS there"),
    1130: (errno.EACCES, "the server does not admit this user from this host"),
    1146: (errno.ESTALE, "the table was dropped during the run; run again"),
    1049: (errno.ENOENT, "create the database, or check 'jdbc.url'"),
    **dict.fromkeys((1205, 1213, 1020), (CONFLICT, "another session held a conflicting lock")),
    1040: (errno.EAGAIN, "raise the server's max_connections, or use fewer cores (spark.master)"),
    1203: (errno.EAGAIN, "raise the user's max_user_connections"),
    1226: (errno.EAGAIN, "raise the limits of the user on the server"),
    1317: (errno.EINTR, "the server ended the statement"),
    1969: (errno.EINTR, "raise the server's max_statement_time"),
    3024: (errno.EINTR, "raise the server's max_execution_time"),
    **dict.fromkeys((1021, 1114), (errno.ENOSPC, "free some space on the server")),
    **dict.fromkeys((1173, 3750), (0, "load the stream with 'upsert', and name `key_properties` "
                    "for it in 'streams' if it has none: the server takes no table without a key")),
    1665: (errno.EPERM, "set binlog_format=ROW or MIXED on the server"),
    1301: (0, "raise the server's max_allowed_packet"),
    **dict.fromkeys((1053, 2006, 2013), (LOST, "the server closed the connection")),
    1290: (errno.EROFS, "the server is read-only, or forbids this"),
    **dict.fromkeys((1148, 3948, 4166), (errno.EPERM, "set local_infile=1 on the server: rows are "
                    "loaded by LOAD DATA LOCAL")),
    1062: (0, "the table has several rows with the same key, or another unique index has such a "
           "row; remove them, drop that index, or load the table with 'append-only'"),
    1451: (0, "other tables refer to rows of this one: load it with 'upsert'"),
    1406: (0, "the value is too long for its column; the length of text keys is limited"),
    2026: (errno.EACCES, "check 'sslMode' in 'jdbc.url', or switch TLS on in the server"),
}  # fmt: skip
_REFUSALS: Mapping[int, str] = {
    1048: "the column does not take null",
    1062: "the table has another row with this value: unique index",
    **dict.fromkeys((1264, 1690), "the number is out of the range of its column"),
    **dict.fromkeys((1265, 1292, 1366, 1367, 1411, 1416), "the value does not fit its column"),
    1364: "the column does not take null, and has no default",
    1406: "the value is too long for its column",
    1452: "the row that the record refers to is missing: foreign key",
    1526: "no partition of the table takes the row",
    1644: "a trigger of the table refuses the row",
    **dict.fromkeys((3140, 3141), "the text is no JSON of the server"),
    3156: "the JSON does not fit its column",
    3157: "the JSON is nested too deeply for the server",
    **dict.fromkeys(
        (3819, 4025), "the row does not fit a condition of the table: check constraint"
    ),
}
"""Numbers of errors for what is in a row."""
_COLUMN = re.compile(r"(?:[Cc]olumn|Field) (?:`[^`]*`\.)*['`]([^'`]+)['`]")
_RULE = re.compile(r"(?:for key|CONSTRAINT|[Cc]onstraint) ['`]([^'`]+)['`]")
_REFUSED = (errno.ECONNREFUSED, "check host and port in 'jdbc.url'")
_UNREACHED = 2003
_TLS = {
    "CERTIFICATE_VERIFY": (errno.EACCES, "check 'sslCa' and the server's certificate"),
    "[SSL": (errno.EPROTO, "its TLS is too old, or a client's certificate is missing; 'sslMode="
             "DISABLED' turns TLS off"),
}  # fmt: skip
"""Text of a connection error that is caused by TLS."""


def _takes(old: T.DataType, new: T.DataType) -> bool:
    """Return whether the server treats types alike: JSON and text, times with and without zone."""
    pairs = ((T.StringType, T.VariantType), (T.TimestampType, T.TimestampNTZType))
    return any(isinstance(old, one) and isinstance(new, other) for one, other in pairs)


class MySql:
    """See `Database`."""

    null_keys = False
    keeps_notes = False  # Changes of rows by others cannot be detected.
    can = Capabilities(widen=holds_all, takes=_takes, refuses_nulls=True)
    rules = NameRules(
        style="keep",
        max_bytes=64,
        forbidden="\0" + "".join(map(chr, range(0xD800, 0xD810))),
        reserved=frozenset(),
        ignore_case=True,
        highest=0xFFFF,
        last=" \t\n\v\f\r",
    )

    def __init__(self) -> None:
        self._sql = MySqlSql()
        self.sql: LoadSql = self._sql

    def connect(self, place: DatabaseAddress) -> Connection:
        """See `Database`. The server can request only the files that `stage` offers."""
        try:
            from target_spark.destinations.databases.mysql.mysql_client import connect_mysql  # noqa: PLC0415
        except ImportError as error:
            raise SettingsError(
                "loading into MySQL or MariaDB needs the package PyMySQL",
                where=Where(setting="jdbc.url"),
                hint="pip install 'singer-spark[mysql]'",
            ) from error
        try:
            connection = connect_mysql(place)
        except RuntimeError as error:
            if "cryptography" not in str(error):
                raise
            raise SettingsError(
                "the user's password can only be sent by TLS, or with the package cryptography",
                where=Where(setting="jdbc.url"),
                hint="set sslMode=REQUIRED in the URL, or pip install cryptography",
            ) from error
        self._sql.mariadb = "MariaDB" in connection.get_server_info()
        cursor = connection.cursor()
        cursor.execute(_SESSION_MARIADB if self._sql.mariadb else _SESSION)
        # What LOAD DATA has changed is known by its warnings. To set their number takes a right.
        cursor.execute("SELECT @@max_error_count")
        if cursor.fetchone() == (0,):
            cursor.execute("SET SESSION max_error_count = 1024")
        result: Connection = connection
        return result

    def stage(
        self, connection: Connection, stage: StagingTable, tables: Iterator[pa.Table]
    ) -> tuple[int, int]:
        """See `Database`: LOAD DATA of a temporary CSV file written by Arrow."""
        cursor = connection.cursor()
        with tempfile.NamedTemporaryFile(prefix="target-spark-", suffix=".csv") as file:
            rows, size = _write(file, stage, tables)
            # Only now: making a table cannot be undone by a rollback here.
            cursor.execute(self.sql.create_stage(stage))
            connection.offered = file.name  # type: ignore[attr-defined]
            cursor.execute(self._sql.load(stage, file.name))
        taken = cursor.rowcount
        _reject_changed(cursor, stage.columns)
        if taken != rows:
            raise DestinationError(f"the server took {taken} of {rows} rows")
        return rows, size

    def describe(self, cursor: Cursor, table: TablePlace) -> FoundTable | None:
        cursor.execute(_RELATION, (table.schema, table.table))
        result = cursor.fetchone()
        if result is None:
            return None
        kind, engine, transactions = result
        if kind not in {"BASE TABLE", "SYSTEM VERSIONED"}:
            raise SettingsError(
                f"'{table.table}' is not a table that can be loaded into",
                hint="a view or another object has this name; rename it or set 'table_prefix'",
            )
        if transactions == "NO":
            raise SettingsError(
                f"the table '{table.table}' has the engine {engine}, which has no transactions: a "
                "load that fails would leave some of its rows",
                hint=f"ALTER TABLE {table.table} ENGINE = InnoDB, or load into another table",
            )
        cursor.execute(_COLUMNS, (table.schema, table.table))
        columns = tuple(_column(row, self._sql.mariadb) for row in cursor.fetchall())
        # Keys of rows are never null here, whether or not the columns can be.
        keys: dict[str, set[str]] = {}
        cursor.execute(_KEYS, (table.schema, table.table))
        own = dict[str, None]()
        for index, name, part, comment in cursor.fetchall():
            keys.setdefault(index, set()).add(name if part is None and name else "")
            if comment == KEY_COMMENT:
                own[index] = None
        sets = (frozenset(names) for names in keys.values() if "" not in names)
        cursor.execute(_TRIGGERS, (table.schema, table.table))
        has_triggers = cursor.fetchone() is not None
        return FoundTable(columns, frozenset(sets), tuple(own), has_triggers)

    def failure(self, error: BaseException) -> Failure | None:
        import pymysql  # noqa: PLC0415

        if not isinstance(error, pymysql.MySQLError):
            return None
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        message = str(error.args[1]) if len(error.args) > 1 else str(error)
        number, hint = _NUMBERS.get(code, (0, ""))
        if code == _UNREACHED:
            timed_out = "timed out" in message
            other = (errno.ETIMEDOUT, _REFUSED[1]) if timed_out else _REFUSED
            if "getaddrinfo" in message or "[Errno -" in message:
                is_unknown = is_unknown_host(message)
                other = (NO_SUCH_HOST if is_unknown else errno.EHOSTUNREACH, _REFUSED[1])
            number, hint = next(
                (existing for word, existing in _TLS.items() if word in message), other
            )
        if code == 0 and isinstance(error, pymysql.InterfaceError | pymysql.OperationalError):
            number, hint = LOST, "the server closed the connection"
        code = 1048 if str(code) == self.sql.other_row and NO_NULL in message else code
        refusal = _REFUSALS.get(code, "")
        if refusal:
            rule = "".join(f" '{name}'" for name in _RULE.findall(message)[-1:])
            refusal = f"{refusal}{rule} [{code}]"
        return Failure(
            message or type(error).__name__,
            str(code or ""),
            number,
            hint,
            refusal=refusal,
            is_of_value=refusal.startswith("the value") and str(code) != self.sql.other_row,
            column="".join(_COLUMN.findall(message)[-1:]) if refusal else "",
        )


_RELATION = (
    "SELECT t.table_type, t.engine, e.transactions FROM information_schema.tables t LEFT JOIN "
    "information_schema.engines e ON e.engine = t.engine "
    "WHERE t.table_schema = %s AND t.table_name = %s"
)
_COLUMNS = (
    "SELECT column_name, column_type, is_nullable, column_default, extra, column_comment, "
    "coalesce(collation_name, '') FROM information_schema.columns "
    "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
)
_TRIGGERS = (
    "SELECT 1 FROM information_schema.triggers WHERE event_object_schema = %s AND "
    "event_object_table = %s AND action_timing = 'BEFORE' LIMIT 1"
)
_KEYS = (
    "SELECT index_name, column_name, sub_part, index_comment FROM information_schema.statistics "
    "WHERE table_schema = %s AND table_name = %s AND non_unique = 0"
)


def _column(row: Sequence[Any], mariadb: bool) -> FoundColumn:
    name, kind, nullable, default, extra, comment, collation = row
    # MariaDB shows a missing default as NULL.
    has_default = default is not None and not (mariadb and default == NULL)
    other = extra.replace("DEFAULT_GENERATED", "").strip()
    clauses = [other, f"COMMENT {literal(comment)}" if comment else ""]
    return FoundColumn(
        name,
        _plain(kind),
        nullable == "YES",
        has_default or bool(extra),
        "GENERATED" in other.upper(),
        collation,
        _default(default, mariadb, is_expression="DEFAULT_GENERATED" in extra)
        if has_default
        else "",
        " ".join(filter(None, clauses)),
    )


def _default(shown: str, mariadb: bool, *, is_expression: bool) -> str:
    """Return the default of a column as an expression."""
    if mariadb or shown.startswith("CURRENT_TIMESTAMP"):
        return shown
    # MySQL shows literals without quotes, and those in expressions with quotes that are escaped.
    quoted = shown.replace("\\'", "'")
    return f"({quoted})" if is_expression else literal(shown)


def _reject_changed(cursor: Cursor, columns: Sequence[StagedColumn]) -> None:
    """Reject values that the server has changed.

    LOAD DATA LOCAL stores another value for them, even in strict mode, and warns.

    Raises:
        RefusedByStoreError: A value was changed.
    """
    cursor.execute("SHOW WARNINGS")
    results = (row[1:] for row in cursor.fetchall() if "deprecated" not in row[2])
    code, text = next(results, (0, ""))
    if code:
        reason = _REFUSALS.get(code, "the database cannot hold the value")
        named = staged_source(columns, "".join(_COLUMN.findall(text)[-1:]))
        raise RefusedByStoreError(f"{named}{reason} [{code}]")


def _write(file: IO[bytes], stage: StagingTable, tables: Iterator[pa.Table]) -> tuple[int, int]:
    rows = 0
    for batch in chunks(tables):
        lines = csv_lines(batch, stage.columns, rows if stage.numbered else None)
        file.write(lines)
        rows += batch.num_rows
    file.flush()
    return rows, os.fstat(file.fileno()).st_size


def csv_lines(batch: pa.RecordBatch, columns: Sequence[StagedColumn], before: int | None) -> bytes:
    """Return rows for LOAD DATA: nulls as the bare word NULL, texts quoted.

    The row number comes first if `before`, the number of earlier rows, is set.
    """
    fields = [] if before is None else [numbers(before, batch.num_rows).cast(_TEXT)]
    for column in columns:
        array = sendable(batch.column(column.source), column)
        fields.append(pc.fill_null(_field(array), pa.scalar("NULL", _TEXT)))
    comma, end, nothing = (pa.scalar(text, _TEXT) for text in (",", "\n", ""))
    lines = pc.binary_join_element_wise(pc.binary_join_element_wise(*fields, comma), end, nothing)
    offsets, data = lines.buffers()[1:]
    ends = pa.Array.from_buffers(pa.int64(), len(lines) + 1, [None, offsets])
    return bytes(data.slice(0, ends[-1].as_py()))


def _field(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_boolean(kind):
        return array.cast(pa.int8()).cast(_TEXT)
    if pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us")).cast(_TEXT)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        quote, nothing = pa.scalar('"', _TEXT), pa.scalar("", _TEXT)
        doubled = pc.replace_substring(array.cast(_TEXT), '"', '""')
        return pc.binary_join_element_wise(quote, doubled, quote, nothing)
    return array.cast(_TEXT)


def _plain(sql_type: str) -> str:
    """Return a type without the display width that old servers report."""
    name, bracket, rest = sql_type.partition("(")  # Members of an enum keep their case.
    kind = f"{name.lower()}{bracket}{rest}"
    return kind if kind == "tinyint(1)" else re.sub(r"^(\w*int)\(\d+\)", r"\1", kind)
