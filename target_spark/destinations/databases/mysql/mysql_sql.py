"""The types and statements of MySQL and MariaDB. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING

from shared.errors import DestinationError, SettingsError, Where
from shared.formats.spark_types import T
from target_spark.destinations.databases.database_tables import (
    Cursor,
    FoundColumn,
    StagedRows,
    TablePlace,
)
from target_spark.destinations.databases.staged_columns import ROW, StagingTable, staged_name
from target_spark.destinations.databases.statements import (
    KEY_COMMENT,
    LEASES,
    LEDGER,
    NAMES,
    LoadSql,
    literal,
)

if TYPE_CHECKING:
    from target_spark.tables.table_changes import Column

NO_NULL = "cannot be null"
_KEY_BYTES = 3072
_LOCK_SECONDS = 7 * 24 * 3600
_MOST_SCALE = 30

TYPES: Mapping[type[T.DataType], str] = {
    T.ByteType: "tinyint",
    T.ShortType: "smallint",
    T.IntegerType: "int",
    T.LongType: "bigint",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.BooleanType: "tinyint(1)",
    T.BinaryType: "longblob",
    T.DateType: "date",
    T.TimestampType: "datetime(6)",
    T.TimestampNTZType: "datetime(6)",
    T.TimeType: "time(6)",
    T.DayTimeIntervalType: "bigint",
    T.YearMonthIntervalType: "int",
    T.StructType: "json",
    T.ArrayType: "json",
    T.MapType: "json",
    T.VariantType: "json",
}
"""Spark types → MySQL types; decimals are `decimal(p,s)`, all others `longtext`."""

_SPARK: Mapping[str, T.DataType] = {
    **{sql_type: kind() for kind, sql_type in reversed([*TYPES.items()]) if sql_type != "json"},
    "json": T.VariantType(),
    "longtext": T.StringType(),
    "time(6)": T.TimeType(6),
}
"""The same from MySQL's side: of two Spark types, the first one."""


_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_NUMBER = re.compile(r"(tiny|small|medium|big)?int\b(?!\(1\))|float|double|decimal")
_TIME = re.compile(r"date|timestamp")
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES = {None: "'", "n": "\n", "r": "\r", "0": "\0"}
"""What stands for a character in the members of an enum or set, as the server lists them."""
_LONGEST = frozenset({"longtext", "longblob"})
_SHORTER = frozenset(
    f"{size}{kind}" for size in ("tiny", "", "medium") for kind in ("text", "blob")
)
_CASCADES = (
    "SELECT DISTINCT table_name FROM information_schema.referential_constraints WHERE "
    "unique_constraint_schema = %s AND referenced_table_name = %s "
    "AND table_name <> referenced_table_name AND delete_rule IN ('CASCADE', 'SET NULL') ORDER BY 1"
)
_TIES = (
    "SELECT 1 FROM information_schema.triggers WHERE event_object_schema = %s "
    "AND event_object_table = %s UNION ALL SELECT 1 FROM information_schema.key_column_usage "
    "WHERE referenced_table_name IS NOT NULL AND table_schema = %s AND table_name = %s "
    "UNION ALL SELECT 1 FROM information_schema.key_column_usage "
    "WHERE referenced_table_schema = %s AND referenced_table_name = %s LIMIT 1"
)


_ATTACHED = (
    "SELECT DISTINCT concat('index ', index_name) FROM information_schema.statistics WHERE "
    "table_schema = %s AND table_name = %s AND index_comment <> %s AND column_name IN "
)


class MySqlSql(LoadSql):
    """MySQL's and MariaDB's statements: see `LoadSql`, also for methods without text here."""

    types = _SPARK
    mark = "`"
    same = "<=>"
    mariadb = True
    undoes_ddl = False
    row_type = "bigint AUTO_INCREMENT PRIMARY KEY"
    impatient = "SET SESSION lock_wait_timeout = 3"
    patient = "SET SESSION lock_wait_timeout = DEFAULT"
    counts_upserts = False  # It counts an updated row twice, and one without changes not at all.
    other_row = "1411"
    ledger: Mapping[str, str] = {
        LEDGER: "id bigint AUTO_INCREMENT PRIMARY KEY, table_name varchar(64) NOT NULL, "
        "stream text NOT NULL, run varchar(32) NOT NULL, token varchar(128) NOT NULL, "
        "note mediumtext NOT NULL, at datetime(6) NOT NULL DEFAULT current_timestamp(6), "
        "ended boolean NOT NULL DEFAULT false, UNIQUE (table_name, token)",
        NAMES: "table_name varchar(64) NOT NULL, source varchar(512) NOT NULL, "
        "column_name varchar(64) NOT NULL, PRIMARY KEY (table_name, source)",
        LEASES: "name varchar(64) NOT NULL PRIMARY KEY, holder text NOT NULL",
    }
    taking = "SELECT GET_LOCK(%s, 0)"
    releasing = "SELECT RELEASE_LOCK(%s)"
    has_schema = "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s"
    current_schema = "SELECT database()"
    stages = (
        "SELECT table_name FROM information_schema.tables "
        "WHERE table_schema = %s AND locate(%s, table_name) = 1"
    )

    @property
    def _collation(self) -> str:
        """Return the collation that compares texts by their bytes, as elsewhere."""
        return "utf8mb4_nopad_bin" if self.mariadb else "utf8mb4_0900_bin"

    @property
    def _text(self) -> str:
        """Return the clause for columns of texts."""
        return f"CHARACTER SET utf8mb4 COLLATE {self._collation}"

    @property
    def options(self) -> str:
        return f" ENGINE InnoDB ROW_FORMAT DYNAMIC {self._text}"

    def type_of(self, data_type: T.DataType) -> str:
        if isinstance(data_type, T.DecimalType) and data_type.scale <= _MOST_SCALE:
            return f"decimal({data_type.precision},{data_type.scale})"
        kind = TYPES.get(type(data_type), "longtext")
        return "longtext" if kind == "json" and self.mariadb else kind

    def same_type(self, data_type: T.DataType, sql_type: str) -> bool:
        kind = self.type_of(data_type)
        sizes = {"longtext": "varchar", "longblob": "varbinary"}
        return kind == sql_type or (kind in sizes and sql_type.startswith(sizes[kind]))

    def form_of(self, data_type: T.DataType) -> str:
        return "hex" if isinstance(data_type, T.BinaryType) else super().form_of(data_type)

    def converted(self, expression: str, staged: str, stored: str) -> str:
        """See `LoadSql`: the server converts values strictly, but rounds numbers and times."""
        kind, size = _kind(stored)
        if kind in {"enum", "set"}:
            text = f"CAST({expression} AS CHAR CHARACTER SET utf8mb4)"
            return _member(f"{text} COLLATE {self._collation}", kind, stored)
        if staged in _LONGEST and kind in _SHORTER:
            # MariaDB copies such a column by the lower bytes of its length, without an error.
            return f"CONCAT({expression}, '')"
        exact = _of_number(expression, staged, kind, size) if _NUMBER.match(staged) else ""
        if exact or staged == stored or (staged in _INTEGERS and kind != "float"):
            return exact or expression
        expression = f"CAST({expression} AS DOUBLE)" if staged == "float" else expression
        if _NUMBER.match(staged) and kind in {"float", "double"} and "," in size:
            created = f"ROUND({expression}, {size.rpartition(',')[2]})"
            created = f"CAST({created} AS FLOAT)" if staged == "float" else created
        elif _NUMBER.match(staged) and (kind in _INTEGERS or kind in {"decimal", "float"}):
            number = {"decimal": f"DECIMAL({size})", "float": "FLOAT"}.get(kind, "")
            created = f"CAST({expression} AS {number})" if number else f"ROUND({expression})"
            created = f"CAST({created} AS CHAR)" if kind == "float" else created
        elif staged == "datetime(6)" and kind in {"datetime", "timestamp", "date"}:
            created = (
                f"CAST({expression} AS {'DATE' if kind == 'date' else f'DATETIME({size or 0})'})"
            )
        elif staged == "time(6)" and kind == "time":
            created = f"CAST({expression} AS TIME({size or 0}))"
        else:
            return _from_text(expression, kind, size) if staged == "longtext" else expression
        refused = f"CONCAT({expression}, ' cannot be stored exactly')"
        return f"CASE WHEN {expression} <> {created} THEN {refused} ELSE {expression} END"

    def bound(self, text: str, data_type: T.DataType) -> object:
        """See `LoadSql`: the server takes what it can read of a text, and no offset of a time."""
        try:
            if isinstance(data_type, T.NumericType) and (number := Decimal(text)).is_finite():
                return number
            if isinstance(data_type, (T.DateType, T.TimestampType, T.TimestampNTZType)):
                time = datetime.fromisoformat(text.replace("Z", "+00:00"))
                return time if time.tzinfo is None else time.astimezone(timezone.utc)
            if not isinstance(data_type, T.NumericType):
                return text
        except (ValueError, ArithmeticError):
            pass
        raise SettingsError(
            f"the bound '{text}' of the range is no value of a column of type "
            f"{data_type.simpleString()}",
            hint="see --from and --to",
        )

    def without_null(self, value: str, column: FoundColumn) -> str:
        """See `LoadSql`: the server replaces a null by a new number, or by the current time."""
        kind, _ = _kind(column.sql_type)
        if column.nullable or not (kind == "timestamp" or "auto_increment" in column.clauses):
            return value
        return _checked(f"{value} IS NOT NULL", value, f"Column '{column.name}' {NO_NULL}", value)

    def compared(self, value: str, staged: str, column: FoundColumn) -> str:
        """See `LoadSql`: the server compares values of two types as doubles."""
        kind, size = _kind(column.sql_type)
        if column.collation:
            # Also keeps the index of a table of ours in use.
            is_ours = (staged, column.collation) == ("longtext", self._collation)
            value = f"RTRIM({value})" if kind == "char" else value
            return value if is_ours else _collated(value, column.collation)
        exact = {*_INTEGERS, "decimal"} if staged in _INTEGERS else {staged}
        kinds = {
            **dict.fromkeys(_INTEGERS, "DECIMAL(20,0)"),
            **dict.fromkeys(("datetime", "timestamp"), f"DATETIME({size or 0})"),
            "decimal": f"DECIMAL({size})",
            "float": "FLOAT",
            "date": "DATE",
            "time": f"TIME({size or 0})",
            "binary": f"BINARY({size})",
            "varbinary": "BINARY",
        }
        is_exact = kind in exact or column.sql_type == staged or kind not in kinds
        return value if is_exact else f"CAST({value} AS {kinds[kind]})"

    def takes(self, data_type: T.DataType, sql_type: str) -> bool:
        staged = self.type_of(data_type)
        if staged == "longtext":
            # No stream has a type for clock times, and taps send JSON of databases as text.
            return sql_type in {"time(6)", "json"}
        if staged in _INTEGERS and sql_type == "tinyint(1)":
            return True
        return any(kind.match(staged) and kind.match(sql_type) for kind in (_NUMBER, _TIME))

    def as_text(self, expression: str, staged: str) -> str:
        return _float_text(expression) if staged == "float" else f"CAST({expression} AS CHAR)"

    def lock_key(self, name: str) -> str:
        return hashlib.sha256(name.encode()).hexdigest()[:60]

    def lock(self, cursor: Cursor, name: str) -> None:
        cursor.execute("SELECT GET_LOCK(%s, %s)", (self.lock_key(name), _LOCK_SECONDS))
        if cursor.fetchone()[0] != 1:
            raise DestinationError(
                "the server did not grant a lock", hint="other runs on the table may be stuck"
            )

    def lease_session(self, seconds: int) -> list[str]:
        """See `LoadSql`: idle sessions end."""
        return [f"SET SESSION wait_timeout = {seconds}"]

    def is_free(self, cursor: Cursor, name: str) -> bool:
        cursor.execute("SELECT IS_FREE_LOCK(%s)", (self.lock_key(name),))
        return bool(cursor.fetchone()[0])

    def create_schema(self, schema: str) -> str:
        return f"CREATE DATABASE IF NOT EXISTS {self.name(schema)} CHARACTER SET utf8mb4"

    def create_stage(self, stage: StagingTable) -> str:
        # Some servers take no table without a primary key.
        return f"{super().create_stage(replace(stage, numbered=True))} {self._text}"

    def load(self, stage: StagingTable, file: str) -> str:
        """Return the statement that loads a file written by `_write`."""
        names = [f"@{staged_name(n)}" if c.form == "hex" else staged_name(n)
                 for n, c in enumerate(stage.columns)]  # fmt: skip
        sets = [f"{name[1:]} = UNHEX({name})" for name in names if name.startswith("@")]
        path = file.replace("\\", "\\\\").replace("'", "\\'")
        listed = ", ".join([ROW, *names] if stage.numbered else names)
        turned = f" SET {', '.join(sets)}" if sets else ""
        return (
            f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE {self.table(stage.place)} "
            "CHARACTER SET utf8mb4 FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' "
            f"ESCAPED BY '' LINES TERMINATED BY '\\n' ({listed}){turned}"
        )

    def create(
        self,
        place: TablePlace,
        columns: Sequence[Column],
        keys: Sequence[str],
        comment: str,
        properties: Mapping[str, str],
    ) -> list[str]:
        if properties:
            raise SettingsError(
                "table properties are not supported for MySQL and MariaDB",
                where=Where(setting="table_properties"),
            )
        created = []
        for column in columns:
            is_key = column.name in keys
            null = " NOT NULL" if is_key or not column.nullable else ""
            created.append(self._column(column, null, len(keys) if is_key else 0))
        if keys:
            created.append(f"PRIMARY KEY ({self.names(keys)}) COMMENT '{KEY_COMMENT}'")
        clause = f" COMMENT {literal(comment[:2048])}" if comment else ""
        return [f"CREATE TABLE {self.table(place)} ({', '.join(created)}){self.options}{clause}"]

    def add(self, place: TablePlace, column: Column) -> list[str]:
        return [f"ALTER TABLE {self.table(place)} ADD COLUMN {self._column(column)}"]

    def change_type(
        self, place: TablePlace, column: FoundColumn, data_type: T.DataType
    ) -> list[str]:
        return [self._modify(place, column, self.type_of(data_type), column.nullable)]

    def drop_not_null(self, place: TablePlace, column: FoundColumn) -> list[str]:
        return [self._modify(place, column, column.sql_type, True)]

    def _modify(self, place: TablePlace, column: FoundColumn, kind: str, nullable: bool) -> str:
        """Change a column; the server forgets each clause that is not repeated."""
        null = "NULL" if nullable else "NOT NULL"
        is_long = kind in {"longtext", "longblob", "json"}
        default = f"({column.default})" if is_long else column.default
        clauses = [f"DEFAULT {default}" if column.default else "", column.clauses]
        what = " ".join([self.name(column.name), kind, null, *filter(None, clauses)])
        return f"ALTER TABLE {self.table(place)} MODIFY COLUMN {what}"

    def unique(self, place: TablePlace, keys: Sequence[str], nullable: bool) -> list[str]:  # noqa: ARG002
        index = f"UNIQUE ({self.names(keys)}) COMMENT '{KEY_COMMENT}'"
        return [f"ALTER TABLE {self.table(place)} ADD {index}"]

    def drop_key(self, place: TablePlace, index: str) -> list[str]:
        return [f"ALTER TABLE {self.table(place)} DROP INDEX {self.name(index)}"]

    def update_from(
        self, table: str, rows: str, sets: Sequence[tuple[str, str]], condition: str
    ) -> str:
        changes = ", ".join(f"t.{self.name(name)} = {value}" for name, value in sets)
        return f"UPDATE {table} t JOIN {rows} ON {condition} SET {changes}"  # noqa: S608

    def cascades(self, cursor: Cursor, place: TablePlace) -> Sequence[str]:
        cursor.execute(_CASCADES, (place.schema, place.table))
        return [str(name) for (name,) in cursor.fetchall()]

    def has_ties(self, cursor: Cursor, place: TablePlace) -> bool:
        cursor.execute(_TIES, (place.schema, place.table) * 3)
        return cursor.fetchone() is not None

    def attached(self, cursor: Cursor, place: TablePlace, columns: Sequence[str]) -> Sequence[str]:
        """See `LoadSql`. Indexes: what else uses a column keeps the server from dropping it."""
        if not columns:
            return []
        names = ", ".join(["%s"] * len(columns))
        cursor.execute(
            f"{_ATTACHED}({names}) ORDER BY 1", (place.schema, place.table, KEY_COMMENT, *columns)
        )
        return [str(name) for (name,) in cursor.fetchall()]

    def index(self, place: TablePlace, columns: Sequence[str]) -> list[str]:
        return [f"ALTER TABLE {self.table(place)} ADD INDEX ({self.names(columns)})"]

    def index_rows(self, stage: TablePlace) -> list[str]:  # noqa: ARG002
        """See `LoadSql`: the number is the primary key."""
        return []

    def on_conflict(self, place: TablePlace, rows: StagedRows) -> str:
        """See `LoadSql`: a row found by another unique index is an error that names the key."""
        table, first = self.table(place), self.name(rows.keys[0])
        names = [self.name(key) for key in rows.keys]
        same = " AND ".join(f"{table}.{name} <=> VALUES({name})" for name in names)
        # The server sets columns one after the other: those of the condition last, backwards.
        others = [name for name in rows.values if name not in {*rows.keys, *rows.order_by}]
        changed = [
            *others,
            *(name for name in reversed(tuple(rows.order_by)) if name not in rows.keys),
        ]
        newer = self.newer(table, "VALUES({name})", rows)
        new = "IF({1}, VALUES({0}), {2}.{0})" if newer else "VALUES({0})"
        refused = _checked(same, f"{table}.{first}", f"'{rows.keys[0]}'", f"VALUES({first})")
        sets = [f"{first} = {refused}"]
        sets += [f"{name} = {new.format(name, newer, table)}" for name in map(self.name, changed)]
        return f"ON DUPLICATE KEY UPDATE {', '.join(sets)}"

    def copy(self, place: TablePlace, like: TablePlace) -> str:
        return f"CREATE TABLE {self.table(place)} LIKE {self.table(like)}"

    def digest(self, values: Sequence[tuple[str, str]]) -> str:
        texts = (f"({value} + 0e0)" if kind == "float" else value for value, kind in values)
        # MySQL 9.6 and later have no MD5.
        digests = ", ".join(f"ifnull(sha2({text}, 256), '-')" for text in texts)
        return f"left(sha2(concat({digests}), 256), 32)"

    def number(self, digest: str) -> str:
        return f"CAST(conv(substr({digest}, 1, 15), 16, 10) AS decimal(20))"

    def example(self, names: Sequence[str]) -> str:
        pairs = (f"{literal(name)}, {self.name(name)}" for name in names)
        return f"json_object({', '.join(pairs)})"

    def retyped(self, expression: str, sql_type: str) -> str:
        """See `LoadSql`: other types have the same text."""
        is_decimal = sql_type.startswith("decimal")
        return super().retyped(expression, sql_type) if is_decimal else expression

    def rename(self, pairs: Sequence[tuple[TablePlace, TablePlace]]) -> str:
        names = (f"{self.table(old)} TO {self.table(new)}" for old, new in pairs)
        return f"RENAME TABLE {', '.join(names)}"

    def delete_marked(self, place: TablePlace, rows: StagedRows) -> list[str]:
        equal = " AND ".join(f"{key} = {value}" for key, value in self.key_pairs(rows))
        newer = self.newer("t", "d.{staged}", rows)
        delete = f"DELETE t FROM {self.table(place)} t JOIN ({self.marked(rows)}) d ON {equal}"
        return [f"{delete} AND {newer}" if newer else delete]

    def _column(self, column: Column, null: str = "", keys: int = 0) -> str:
        """Return a column in a statement; `keys` is the number of key columns if it is one."""
        kind = self.type_of(column.dtype)
        if keys and kind in {"longtext", "json"}:
            kind = f"varchar({min(255, _KEY_BYTES // 4 // keys)})"
        if keys and kind == "longblob":
            kind = f"varbinary({min(255, _KEY_BYTES // keys)})"
        clause = f" COMMENT {literal(column.comment[:1024])}" if column.comment else ""
        return f"{self.name(column.name)} {kind}{null}{clause}"


def _kind(sql_type: str) -> tuple[str, str]:
    """Return the name of a type, and what its parentheses hold."""
    name, _, rest = sql_type.partition("(")
    return name.split(" ")[0], rest.split(")")[0]


def _checked(condition: str, value: str, text: str, other: str) -> str:
    """Return a value unless a condition is false, which is an error 1411 with a text.

    A column of numbers or times may take null for another value. The text depends on another value,
    as servers compute constants before they look at conditions.
    """
    wrong = f"CONCAT({literal(text)}, COALESCE(LEFT(HEX({other}), 0), ''))"
    return f"IF({condition} OR STR_TO_DATE({wrong}, 'Y'), {value}, NULL)"


def _collated(value: str, collation: str) -> str:
    """Return a value as a text that is compared by a collation."""
    text = f"CAST({value} AS CHAR CHARACTER SET utf8mb4)"
    charset = collation.partition("_")[0]
    if charset != "utf8mb4":
        # A character that the character set lacks would become a question mark.
        own = f"CONVERT({text} USING {charset})"
        is_same = f"CONVERT({own} USING utf8mb4) = {text} COLLATE utf8mb4_bin"
        text = f"CASE WHEN {is_same} THEN {own} ELSE CONVERT(HEX({text}) USING {charset}) END"
    return f"{text} COLLATE {collation}"


def _of_number(value: str, staged: str, kind: str, size: str) -> str:
    """Return a number for a column of another kind; empty if it needs no care beyond its digits."""
    if kind == "year":
        return _exact_year(value)
    if kind == "bit":
        return _from_text(_whole_number(value), kind, size)
    if kind == "double":
        return _exact_integer(value) if staged in _INTEGERS else ""
    if staged == "float" and kind in _TEXTS:
        return _float_text(value)
    return value if staged == kind == "float" and "," not in size else ""


def _float_text(value: str) -> str:
    """Return the text of a float; the server's has six digits, and is taken if it says all."""
    short, whole = f"CAST({value} AS CHAR)", f"CAST(CAST({value} AS DOUBLE) AS CHAR)"
    return f"CASE WHEN CAST({short} AS FLOAT) = {value} THEN {short} ELSE {whole} END"


def _exact_integer(value: str) -> str:
    """Return an integer for a column of doubles, which would round it."""
    text = f"CAST(CAST({value} AS DOUBLE) AS CHAR)"
    return _exact(value, f"CAST({text} AS DECIMAL(30,0)) = {value}")


def _exact_year(value: str) -> str:
    """Return a number for a column of years, which would round it, or add a century."""
    same = f"({value} = ROUND({value}) AND {value} NOT BETWEEN 1 AND 99)"
    return _exact(value, same, f"CASE {value} WHEN 0 THEN '0000' ELSE ROUND({value}) END")


def _whole_number(value: str) -> str:
    """Return the digits of a number; a text that is no number if it has a fraction."""
    digits = f"CAST(CAST({value} AS DECIMAL(20,0)) AS CHAR)"
    refused = f"CONCAT({value}, '.')"
    return f"CASE WHEN {value} <> ROUND({value}) THEN {refused} ELSE {digits} END"


def _from_text(text: str, kind: str, size: str) -> str:
    """Return a text for a column; what the server would cut off or round is an error of it."""
    if kind in {"varchar", "char"}:
        return f"CASE WHEN CHAR_LENGTH({text}) > {size} THEN CONCAT({text}, '.') ELSE {text} END"
    if kind == "bit":
        number = f"CASE WHEN {text} REGEXP '^[0-9]+$' THEN {text} ELSE CONCAT({text}, '.') END"
        return f"CASE WHEN {text} IS NOT NULL THEN CAST({number} AS UNSIGNED) END"
    if kind == "year":
        same = f"{text} REGEXP '^[0-9]{{4}}$'"
    elif kind in _INTEGERS:
        same = f"{text} REGEXP '^[-+]?[0-9]+$'"
    elif kind == "decimal":
        same = f"CAST({text} AS DECIMAL(65,30)) = CAST({text} AS DECIMAL({size}))"
    elif kind in {"float", "double"}:
        same = _keeps_digits(text, kind, size)
    elif kind in {"datetime", "timestamp", "time"}:
        number = "TIME" if kind == "time" else "DATETIME"
        same = (
            f"CAST({text} AS {number}(6)) = CAST({text} AS {number}({size or 0})) AND "
            f"{text} NOT REGEXP '[.][0-9]{{6}}[0-9]*[1-9]'"
        )
        if kind == "time":  # The server would drop a date.
            same = f"{text} NOT REGEXP '[0-9]-' AND {same}"
    else:
        return text
    return _exact(text, same)


def _exact(value: str, same: str, stored: str = "") -> str:
    """Return a value, or what is stored for it; unless `same`, a text that the server refuses."""
    refused = f"CONCAT({value}, ' cannot be stored exactly')"
    return f"CASE WHEN {value} IS NULL OR {same} THEN {stored or value} ELSE {refused} END"


def _keeps_digits(text: str, kind: str, size: str) -> str:
    """Return the condition that a column of floats keeps all digits of a text."""
    number = f"CAST({text} AS DOUBLE)"
    created = f"CAST(CAST({number} AS FLOAT) AS CHAR)" if kind == "float" else number
    created = f"ROUND({number}, {size.rpartition(',')[2]})" if "," in size else created
    # Up to 15 digits survive in a double.
    is_short = f"LENGTH(REGEXP_REPLACE({text}, '[eE].*|[^0-9]', '')) <= 15"
    exact, double = (f"CAST({one} AS DECIMAL(65,30))" for one in (text, f"CAST({number} AS CHAR)"))
    return f"{number} = {created} AND ({is_short} OR {exact} = {double})"


def _member(text: str, kind: str, stored: str) -> str:
    """Return a text for an enum or set, which takes a number as the place of a member."""
    members = [
        _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), name)
        for name in re.findall(r"'((?:[^']|'')*)'", stored)
    ]
    if kind == "enum":
        same = f"{text} IN ({', '.join(map(literal, members))})"
    else:
        one = "|".join(map(re.escape, members))
        same = f"{text} REGEXP {literal(f'^(({one})(,({one}))*)?$')} AND {text} NOT REGEXP {_TWICE}"
    return f"CASE WHEN {text} IS NULL OR {same} THEN {text} ELSE CONCAT({text}, ' is none') END"


_TWICE = literal(r"(^|,)([^,]+),([^,]*,)*\2(,|$)")
"""A text for a set that names a member twice."""
