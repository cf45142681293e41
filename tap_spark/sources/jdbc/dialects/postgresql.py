"""PostgreSQL, and databases that speak its protocol; the Spark type of each of its types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tap_spark.sources.jdbc.dialects.dialect import (
    ColumnInfo,
    Dialect,
    KeyOrder,
    QueryRunner,
    Row,
    TableInfo,
    TableName,
    decimal,
    group_rows,
    is_ordered,
    sorted_tables,
    with_era,
)

# Dates and timestamps are read as days and microseconds since 1970: Java's own classes use another
# calendar before 1582 and have no infinity, which becomes the last moment of the year 9999.
_DATE = (
    "CASE WHEN isfinite({}) THEN {} - DATE 'epoch' "
    "WHEN {} > DATE 'epoch' THEN 2932896 WHEN {} IS NOT NULL THEN -719162 END"
)
_BEYOND = "WHEN isfinite({}) THEN ({}::text || ' is beyond the year 294246')"
"""The server refuses the cast of this text: the times of Spark and Arrow end in that year."""
_MICROS = (
    "CASE WHEN {} > '-infinity' AND {} < '294247-01-01' "
    f"THEN (extract(epoch FROM {{}}) * 1000000)::bigint {_BEYOND}::bigint "
    "WHEN {} > 'epoch' THEN 253402300799999999 WHEN {} IS NOT NULL THEN -62135596800000000 END"
)
# Before version 14 that epoch is a float, which does not hold every microsecond.
_EXACT_EPOCH = 140000
_OLD_EPOCH = {
    "timestamp": "({} - TIMESTAMP 'epoch')",
    "timestamptz": "(({} AT TIME ZONE 'UTC') - TIMESTAMP 'epoch')",
}
_OLD_MICROS = (
    "(extract(day FROM {0})::bigint * 86400000000 + extract(hour FROM {0})::bigint * 3600000000"
    " + extract(minute FROM {0})::bigint * 60000000 + extract(microseconds FROM {0})::bigint)"
)
_COPIED = (
    "CASE WHEN {} > '-infinity' AND {} < '294247-01-01' THEN {} "
    f"{_BEYOND}::{{type}} WHEN {{}} > 'epoch' "
    "THEN {type} '9999-12-31 23:59:59.999999+00' WHEN {} IS NOT NULL "
    "THEN {type} '0001-01-01 00:00:00+00' END"
)
"""The same moment in its own type: extracting the epoch takes the server five times as long."""

SCALARS: Mapping[str, tuple[str, str]] = {
    "bool": ("boolean", "{}"),
    "int2": ("smallint", "{}"),
    "int4": ("int", "{}"),
    "int8": ("bigint", "{}"),
    "oid": ("bigint", "{}::bigint"),
    "float4": ("float", "{}"),
    "float8": ("double", "{}"),
    "text": ("string", "{}"),
    "varchar": ("string", "{}"),
    # A cast to text would cut trailing blanks of the value.
    "bpchar": ("string", "CASE WHEN {} IS NOT NULL THEN format('%s', {}) END"),
    # As PostgreSQL prints it; a cast to text always adds /32.
    "inet": ("string", "abbrev({})"),
    "bytea": ("binary", "{}"),
    "date": ("date", _DATE),
    "timestamp": ("timestamp_ntz", _MICROS),
    "timestamptz": ("timestamp", _MICROS),
}
"""Spark's type, and the SQL that reads it; every other type is read as text."""
ELEMENTS = ("bool", "int2", "int4", "int8", "float4", "float8", "date", "timestamp", "timestamptz")
"""Types of array elements that JSON and Spark read exactly; the others are read as text."""
TEXT_KEYS = ("text", "varchar", "bpchar", "name")
"""Types that are compared by their bytes, whatever their collation: as Spark orders them."""
ORDERED = (
    *("numeric", "inet", "cidr", "macaddr", "macaddr8", "time", "timetz", "interval"),
    *("bit", "varbit", "pg_lsn"),
)
"""Types that are read as text, but that PostgreSQL orders by their value."""
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def column_type(row: Mapping[str, Any], quoted: str) -> tuple[str, str]:
    """Return Spark's type of a column and the SQL that reads it, by its row of the metadata."""
    if row["element"] is not None:
        return _array(row, quoted)
    if not row["builtin"]:
        return "string", f"{quoted}::text"
    name = row["base"]
    if name == "numeric":
        return _numeric(row, quoted)
    if name == "money":
        # A 64-bit integer; its decimal places depend on the server's locale.
        digits = f"(19,{row['money_scale']})"
        return f"decimal{digits}", f"{quoted}::numeric{digits}"
    kind, expression = SCALARS.get(name, ("string", "{}::text"))
    if expression is _MICROS and row["version"] < _EXACT_EPOCH:
        since = _OLD_EPOCH[name]
        expression = _MICROS.replace(
            "(extract(epoch FROM {}) * 1000000)::bigint", _OLD_MICROS.replace("{0}", since)
        )
    return kind, expression.replace("{}", quoted)


def copied_expression(row: Mapping[str, Any], quoted: str) -> str:
    """Return the SQL by which COPY reads a column; empty if it is that of `column_type`."""
    if row["element"] is None and row["builtin"] and row["base"] in ("timestamp", "timestamptz"):
        return _COPIED.replace("{type}", row["base"]).replace("{}", quoted)
    return ""


def order_of(row: Mapping[str, Any], spark_type: str) -> KeyOrder:
    """Return who orders a column, by its row of the metadata query and Spark's type."""
    if is_ordered(spark_type) or (row["builtin"] and row["base"] in ("uuid", *TEXT_KEYS)):
        return KeyOrder.SPARK
    if row["is_enum"] or (row["builtin"] and row["base"] in ORDERED):
        return KeyOrder.DATABASE
    # Of a domain over a citext outside of the search path, `compared` has no schema.
    if row["base"] == "citext" and row["base_words"] in ("citext", row["words"]):
        return KeyOrder.DATABASE
    return KeyOrder.NONE


def query_precision(row: Mapping[str, Any], spark_type: str) -> dict[str, Any]:
    """Return the precision of a query's `numeric`, which Spark's reader knows, up to 38 digits."""
    match = _DECIMAL.fullmatch(spark_type)
    if match is None or row["base"] != "numeric" or _NUMERIC.search(row["base_words"]):
        return {}
    return {"base_words": f"numeric({match[1]},{match[2]})", "checked": match[1] == "38"}


def _numeric(row: Mapping[str, Any], quoted: str) -> tuple[str, str]:
    kind = _numeric_type(row["base_words"])
    if kind == "string":
        return kind, f"{quoted}::text"
    words, name = kind.replace("decimal", "numeric"), row["name"].replace("'", "''")
    if row.get("checked"):
        # Spark's reader also means a numeric of any precision: then each value must fit.
        digits, scale = map(int, kind[len("decimal(") : -1].split(","))
        fits = f"abs({quoted}) < 1E{digits - scale} AND {quoted} = round({quoted}, {scale})"
        problem = f" does not fit {kind}: cast column {name} of the query to text"
    elif row["nullable"]:
        # Decimals have no NaN: it becomes null, or fails the read if the column is not nullable.
        return kind, f"NULLIF({quoted}::{words}, 'NaN')"
    else:
        fits = f"{quoted} <> 'NaN'"
        problem = f" cannot be null in column {name}: cast it to text in a query"
    other = f"WHEN {quoted} IS NOT NULL THEN ({quoted} || '{problem}')::numeric"
    return kind, f"(CASE WHEN {fits} THEN {quoted} {other} END)::{words}"


def _numeric_type(words: str) -> str:
    match = _NUMERIC.search(words)
    return decimal(int(match[1]), int(match[2])) if match else "string"


def _array(row: Mapping[str, Any], quoted: str) -> tuple[str, str]:
    """Read an array as JSON text: neither the driver nor Spark then needs its dimensions."""
    name = row["element"] if row["element_builtin"] else ""
    # The array's own text holds the text of each element as PostgreSQL prints it: array_to_json
    # would write numbers, JSON and composites as JSON, and a cast of the elements cuts and adds.
    kind, value = "string", f"{quoted}::text::text[]"
    if row["delimiter"] != ",":
        value = f"{quoted}::text[]"
    if name in ELEMENTS:
        kind, value = SCALARS[name][0], quoted
    elif name == "numeric" and _numeric_type(row["base_words"]) != "string":
        kind, value = _numeric_type(row["base_words"]), f"array_replace({quoted}, 'NaN', NULL)"
    dimensions = max(1, int(row["dimensions"]))
    nested = "array<" * dimensions + kind + ">" * dimensions
    text = f"array_to_json({value})::text"
    if kind == "string":
        return nested, text
    other = f"array_ndims({quoted}) <> {dimensions}"
    return nested, f"CASE WHEN {other} THEN array_dims({quoted}) ELSE {text} END"


SPARSE = 100
"""Rows of a sample's blocks for each of its rows: dozens of blocks, as widths change with age."""
KINDS = {"r": "table", "p": "partitioned", "v": "view", "m": "materialized view", "f": "foreign"}

TABLES = """
WITH RECURSIVE tree AS (
  SELECT inhparent AS root, inhrelid AS part FROM pg_catalog.pg_inherits
  UNION
  SELECT t.root, i.inhrelid FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.part
), parts AS (
  SELECT root, part FROM tree UNION SELECT oid, oid FROM pg_catalog.pg_class WHERE relkind <> 'p'
)
SELECT c.oid::bigint AS id, n.nspname::text AS schema, c.relname::text AS name,
  c.relkind::text AS kind, s.row_count, s.size_bytes,
  (SELECT pg_catalog.json_agg(a.attname ORDER BY k.place)::text
    FROM pg_catalog.pg_constraint p
    CROSS JOIN LATERAL pg_catalog.unnest(p.conkey) WITH ORDINALITY AS k(number, place)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = p.conrelid AND a.attnum = k.number
    WHERE p.conrelid = c.oid AND p.contype = 'p') AS primary_key,
  (SELECT pg_catalog.json_agg(DISTINCT a.attname)::text
    FROM pg_catalog.pg_index i
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL) AS indexed
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN LATERAL (
  SELECT CASE WHEN bool_and(l.reltuples >= 0
      AND (l.reltuples > 0 OR pg_catalog.current_setting('server_version_num')::int >= 140000))
    THEN sum(l.reltuples)::bigint END AS row_count,
    sum({size})::bigint AS size_bytes
  FROM parts p JOIN pg_catalog.pg_class l ON l.oid = p.part
  WHERE p.root = c.oid AND l.relkind IN ('r', 'm', 'f')
) s ON true
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND {wanted}
"""
"""One row per table. Sizes of parts (partitions, inheriting tables) are added up."""

DOMAINS = """
WITH RECURSIVE domains AS (
  SELECT oid, typbasetype AS base, typtypmod AS typmod, typnotnull AS not_null, typndims AS ndims
  FROM pg_catalog.pg_type WHERE typtype = 'd'
  UNION ALL
  SELECT d.oid, t.typbasetype, greatest(d.typmod, t.typtypmod), d.not_null OR t.typnotnull,
    greatest(d.ndims, t.typndims)
  FROM domains d JOIN pg_catalog.pg_type t ON t.oid = d.base WHERE t.typtype = 'd'
)"""
TYPES = """
  pg_catalog.format_type(a.atttypid, a.atttypmod) AS words,
  pg_catalog.format_type(b.oid, coalesce(d.typmod, a.atttypmod)) AS base_words,
  b.typname::text AS base, b.typnamespace = 'pg_catalog'::regnamespace AS builtin,
  e.typname::text AS element, e.typnamespace = 'pg_catalog'::regnamespace AS element_builtin,
  e.typdelim::text AS delimiter, b.typtype = 'e' AS is_enum,
  greatest(a.attndims, d.ndims)::int AS dimensions,
  NOT (a.attnotnull OR coalesce(d.not_null, false)) AS nullable,
  pg_catalog.current_setting('server_version_num')::int AS version"""
JOINED_TYPES = """
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN domains d ON d.oid = t.oid AND NOT EXISTS (
  SELECT FROM pg_catalog.pg_type x WHERE x.oid = d.base AND x.typtype = 'd')
JOIN pg_catalog.pg_type b ON b.oid = coalesce(d.base, t.oid)
LEFT JOIN pg_catalog.pg_type e ON e.oid = b.typelem AND b.typlen = -1 AND e.typarray = b.oid
"""
COLUMNS = f"""{DOMAINS}
SELECT c.oid::bigint AS id, a.attname::text AS name, {TYPES}
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
{JOINED_TYPES}
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND {{wanted}}
ORDER BY c.oid, a.attnum
"""  # noqa: S608
"""One row per column; domains are resolved to their types."""

QUERY_COLUMNS = f"""{DOMAINS}
SELECT a.place, a.attname AS name, {TYPES}
FROM (
  SELECT v.place, v.attname, v.atttypid, -1 AS atttypmod, 0 AS attndims,
    false AS attnotnull
  FROM (SELECT 1) one LEFT JOIN (SELECT * FROM {{source}} LIMIT 0) q ON true
  CROSS JOIN LATERAL (VALUES {{values}}) v (place, attname, atttypid)
) a {JOINED_TYPES}
ORDER BY a.place
"""  # noqa: S608
"""One row per column of a query, of which no row is read; precisions are unknown."""

MONEY = "SELECT pg_catalog.scale(0::money::numeric)::int AS scale"
"""Decimal places of money, which depend on the server's locale."""

READABLE = """n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND NOT c.relispartition
  AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')"""
READABLE_TABLE = "pg_catalog.has_any_column_privilege(c.oid, 'SELECT')"
READABLE_COLUMN = "pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')"


class PostgreSqlDialect(Dialect):
    """Quotes, metadata and values of PostgreSQL."""

    name = "postgresql"

    def tables(self, run_query: QueryRunner, only: TableName | None = None) -> list[TableInfo]:
        """Describe every table and view the user may read, by two or three queries."""
        # The exact size needs a lock, which a table that is being altered does not grant.
        size = "pg_catalog.pg_relation_size(l.oid)" if only else "l.relpages::bigint * 8192"
        wanted = self._named(only) if only else f"{READABLE} AND {READABLE_TABLE}"
        tables = run_query(TABLES.format(size=size, wanted=wanted))
        wanted = self._named(only) if only else f"{READABLE} AND {READABLE_COLUMN}"
        rows = self._with_money(run_query, run_query(COLUMNS.format(wanted=wanted)))
        columns = group_rows(rows, "id")
        described = (self._table(row, columns.get((row["id"],), [])) for row in tables)
        return sorted_tables(table for table in described if table.columns)

    def row_widths(
        self, columns: Sequence[ColumnInfo], source: str, table: TableInfo | None, rows: int
    ) -> str:
        """Select the mean and the greatest width of some rows, from all over a large table."""
        width = " + ".join(
            f"coalesce(pg_catalog.octet_length({c.expression}), 0)"
            if c.spark_type == "binary"
            else f"coalesce(pg_catalog.octet_length(({c.expression})::text), 0)"
            for c in columns
        )
        count = table.row_count if table and table.kind in ("table", "materialized view") else None
        if count and count > rows * SPARSE:
            # Whole blocks at random, and of their rows some.
            percent = 100 * rows * SPARSE / count
            some = f"WHERE random() * {SPARSE} < 1"
            source = f"{source} TABLESAMPLE SYSTEM ({percent:.6f}) {some}"
        elif count and count > rows:
            source = f"{source} WHERE random() * {count / rows:.6f} < 1"
        seen = f"SELECT {width} AS w FROM {source} LIMIT {2 * rows}"  # noqa: S608
        return f"SELECT avg(w)::bigint AS mean, max(w)::bigint AS most FROM ({seen}) widths"  # noqa: S608

    def query_columns(self, run_query: QueryRunner, source: str) -> tuple[ColumnInfo, ...]:
        """Describe the columns of a query by PostgreSQL's own types, as those of tables."""
        struct = run_query.struct(f"SELECT * FROM {source}")  # noqa: S608
        values = ", ".join(
            f"({n}, {self.text(f.name)}, pg_catalog.pg_typeof(q.{self.quote(f.name)})::oid)"
            for n, f in enumerate(struct.fields)
        )
        rows = self._with_money(
            run_query, run_query(QUERY_COLUMNS.format(source=source, values=values))
        )
        return tuple(
            self._column({**row, **query_precision(row, field.dataType.simpleString())})
            for row, field in zip(rows, struct.fields, strict=True)
        )

    def _with_money(self, run_query: QueryRunner, rows: list[dict[str, Any]]) -> list[Row]:
        if not any(row["base"] == "money" for row in rows):
            return [*rows]
        money = {"money_scale": run_query(MONEY)[0]["scale"]}
        return [{**row, **money} for row in rows]

    def _named(self, only: TableName) -> str:
        schema, name = only
        if schema is None:
            return f"c.relname = {self.text(name)} AND pg_catalog.pg_table_is_visible(c.oid)"
        return f"c.relname = {self.text(name)} AND n.nspname = {self.text(schema)}"

    def _table(self, row: Row, rows: Iterable[Row]) -> TableInfo:
        columns = tuple(map(self._column, rows))
        readable = {column.name for column in columns}
        key = json.loads(row["primary_key"] or "[]")
        indexed = {*json.loads(row["indexed"] or "[]"), *key}
        keys = (
            column.name
            for column in columns
            if is_ordered(column.spark_type)
            or (column.name in indexed and column.order is not KeyOrder.NONE)
        )
        return TableInfo(
            schema=row["schema"],
            name=row["name"],
            kind=KINDS[row["kind"]],
            columns=columns,
            primary_key=tuple(key) if readable.issuperset(key) else (),
            replication_keys=tuple(keys),
            row_count=row["row_count"],
            size_bytes=row["size_bytes"],
        )

    def _column(self, row: Row) -> ColumnInfo:
        name, quoted = row["name"], self.quote(row["name"])
        kind, expression = column_type(row, quoted)
        order, copied = order_of(row, kind), copied_expression(row, quoted)
        nullable = bool(row["nullable"])
        return ColumnInfo(name, row["words"], kind, nullable, expression, "", order, copied)

    def text(self, value: str) -> str:
        """Write a string as SQL that means the same with every setting of the server.

        Raises:
            ValueError: It has a NUL character.
        """
        return "E" + super().text(value).replace("\\", "\\\\")

    def key(self, column: ColumnInfo) -> str:
        """Write the column as SQL for comparisons: text that Spark orders by its bytes."""
        quoted = self.quote(column.name)
        is_text = column.spark_type == "string" and column.sql_type != "uuid"
        if is_text and column.order is KeyOrder.SPARK:
            return f'({column.expression}) COLLATE "C"'
        return quoted

    def compared(self, column: ColumnInfo, operator: str, value: Any) -> str:
        """See `Dialect`: without its schema, the operator of a hidden citext is that of text."""
        schema, _, name = column.sql_type.rpartition(".")
        if schema and name == "citext":
            operator = f"OPERATOR({schema}.{operator})"
        return super().compared(column, operator, value)

    def greatest(self, column: ColumnInfo, source: str) -> str:
        """Select the greatest value that can be a bookmark; `max` does not know every type."""
        key = self.quote(column.name)
        finite = f"{key}::text NOT IN ('NaN', 'Infinity', '-Infinity', 'infinity', '-infinity')"
        rows = f"SELECT {key} FROM {source} rows WHERE {finite}"  # noqa: S608
        return f"{rows} ORDER BY {key} DESC LIMIT 1"

    def literal(self, value: Any, column: ColumnInfo) -> str:
        written = super().literal(value, column)
        if column.sql_type == "uuid":
            return f"{written}::uuid"
        # Money is read as a number, with which the server does not compare it.
        is_money = column.expression.startswith(f"{self.quote(column.name)}::numeric(")
        return f"({written})::numeric::money" if is_money else written

    def day(self, day: str) -> str:
        return with_era(day, "BC")

    def moment(self, kind: str, day: str, clock: str, zone: str, column: ColumnInfo) -> str:
        written = super().moment(kind, day, clock, zone, column)
        return written.replace("TIMESTAMP", "TIMESTAMPTZ") if kind == "timestamp" else written
