"""PostgreSQL's types and statements, and the view over whole records. Pure."""

# ruff: noqa: S608 - names are quoted, values are arguments or quoted literals.
from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from shared.errors import SettingsError, Where
from shared.formats.spark_types import T
from target_spark.core.load_plans import DOCUMENT, TableRequest
from target_spark.destinations.databases.database_tables import (
    Cursor,
    FoundColumn,
    StagedRows,
    TablePlace,
)
from target_spark.destinations.databases.statements import (
    KEY_COMMENT,
    LEASES,
    LEDGER,
    NAMES,
    LoadSql,
    literal,
)
from target_spark.tables.table_changes import NameRules, assign_names

if TYPE_CHECKING:
    from target_spark.tables.table_changes import Column

TYPES: Mapping[type[T.DataType], str] = {
    T.ByteType: "smallint",
    T.ShortType: "smallint",
    T.IntegerType: "integer",
    T.LongType: "bigint",
    T.FloatType: "real",
    T.DoubleType: "double precision",
    T.BooleanType: "boolean",
    T.BinaryType: "bytea",
    T.DateType: "date",
    T.TimestampType: "timestamp with time zone",
    T.TimestampNTZType: "timestamp without time zone",
    T.TimeType: "time without time zone",
    T.DayTimeIntervalType: "interval day to second",
    T.YearMonthIntervalType: "interval year to month",
    T.StructType: "jsonb",
    T.ArrayType: "jsonb",
    T.MapType: "jsonb",
    T.VariantType: "jsonb",
}
"""Spark types → PostgreSQL types; decimals are `numeric(p,s)`, all others `text`."""

_FLOATS = (T.FloatType, T.DoubleType)
_INTEGERS = frozenset({"smallint", "integer", "bigint"})
_NUMBER = re.compile(r"(smallint|integer|bigint|real|double precision|numeric)(\(\d+,-?\d+\))?")
_TIME = re.compile(r"(date|timestamp(\(\d\))? with(out)? time zone)")
_TEXT = re.compile(r"character(?: varying)?\((\d+)\)")
_CLOCK = re.compile(r"time(\(\d\))? with(out)? time zone|interval.*")
_FINER = "'[.][0-9]{6}[0-9]*[1-9]'"
"""Texts of times with digits that the server would round."""
_DATED = "'[0-9][-/][0-9A-Za-z]+[-/]'"
"""Texts of times that have a date, too."""
_HEX = r"E'\\x'"
_CUTTING = frozenset({"name", '"char"', "oid"})
"""Types to which the server cuts a text, or wraps a number, silently."""
_KEEPS_ROWS = (
    "SELECT relhasrules OR EXISTS (SELECT FROM pg_trigger t WHERE NOT tgisinternal AND "
    "tgtype & 11 = 11 AND tgenabled <> 'D' AND (tgrelid = c.oid OR tgrelid IN (SELECT relid FROM "
    "pg_partition_tree(c.oid)))) FROM pg_class c WHERE oid = %s::regclass"
)
_CASCADES = (
    "SELECT conrelid::regclass::text FROM pg_constraint WHERE confrelid = %s::regclass "
    "AND conrelid <> confrelid AND contype = 'f' AND confdeltype IN ('c', 'n', 'd') UNION ALL "
    "SELECT inhrelid::regclass::text FROM pg_inherits JOIN pg_class p ON p.oid = inhparent "
    "JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = %s::regclass AND p.relkind = 'r' "
    "AND c.relnamespace::regnamespace::text <> '_timescaledb_internal' AND NOT EXISTS (SELECT "
    "FROM pg_trigger WHERE tgrelid = inhparent AND NOT tgisinternal AND tgtype & 7 = 7) ORDER BY 1"
)
"""Tables whose rows are not those of the table, but for children to which a trigger routes rows."""
_ATTACHED = (
    "SELECT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d JOIN pg_attribute a ON "
    "a.attrelid = d.refobjid AND a.attnum = d.refobjsubid WHERE d.refclassid = 'pg_class'::regclass"
    " AND d.refobjid = %s::regclass AND a.attname = ANY(%s) AND d.deptype IN ('a', 'n', 'i') AND "
    "d.classid <> 'pg_rewrite'::regclass AND coalesce(obj_description(d.objid, 'pg_class'), '') <> "
    f"'{KEY_COMMENT}' UNION ALL SELECT 'rights on column ' || attname FROM pg_attribute WHERE "
    "attrelid = %s::regclass AND attname = ANY(%s) AND attacl IS NOT NULL ORDER BY 1"
)
_VIEW_COMMENT = "target-spark: generate_view"
_VIEW_HINT = "rename it, or set `generate_view` to false"
_SPARK: Mapping[str, T.DataType] = {
    **{sql_type: kind() for kind, sql_type in TYPES.items() if sql_type != "jsonb"},
    "jsonb": T.VariantType(),
    "text": T.StringType(),
    "time without time zone": T.TimeType(6),
}
"""The same from PostgreSQL's side: of two Spark types, the last one."""


class PostgreSqlSql(LoadSql):
    """PostgreSQL's statements: see `LoadSql`, also for methods without text here."""

    types = _SPARK
    unlogged = "UNLOGGED "
    overriding = " OVERRIDING SYSTEM VALUE"
    ledger: Mapping[str, str] = {
        LEDGER: "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, table_name text NOT NULL, "
        "stream text NOT NULL, run text NOT NULL, token text NOT NULL, note text NOT NULL, "
        "at timestamptz NOT NULL DEFAULT now(), ended boolean NOT NULL DEFAULT false, "
        "proof text NOT NULL DEFAULT '', UNIQUE (table_name, token)",
        NAMES: "table_name text NOT NULL, source text NOT NULL, column_name text NOT NULL, "
        "PRIMARY KEY (table_name, source)",
        LEASES: "name text PRIMARY KEY, holder text NOT NULL",
    }
    taking = "SELECT pg_try_advisory_lock(%s)"
    releasing = "SELECT pg_advisory_unlock(%s)"
    impatient = "SET LOCAL lock_timeout = '3s'"
    immediate = "SET CONSTRAINTS ALL IMMEDIATE"
    has_schema = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
    current_schema = "SELECT coalesce(current_schema(), 'public')"
    stages = (
        "SELECT c.relname FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace "
        "WHERE s.nspname = %s AND c.relkind = 'r' AND starts_with(c.relname, %s)"
    )

    def type_of(self, data_type: T.DataType) -> str:
        if isinstance(data_type, T.DecimalType):
            return f"numeric({data_type.precision},{data_type.scale})"
        return TYPES.get(type(data_type), "text")

    def spark_type(self, sql_type: str) -> T.DataType | None:
        return super().spark_type(re.sub(r"\(\d+\)$", "", sql_type))

    def converted(self, expression: str, staged: str, stored: str) -> str:
        if staged == stored:
            return expression
        if stored.endswith("[]") and staged == "jsonb":
            return _array(expression, stored[:-2])
        if _NUMBER.fullmatch(staged) and _NUMBER.fullmatch(stored):
            return _exact_number(expression, staged, stored)
        if _TIME.fullmatch(staged) and _TIME.fullmatch(stored):
            return _exact(expression, f"CAST({expression} AS {stored})", stored)
        return _from_text(f"CAST({expression} AS text)", stored)

    def compared(self, value: str, staged: str, column: FoundColumn) -> str:  # noqa: ARG002
        return f"{value} COLLATE {column.collation}" if column.collation else value

    def takes(self, data_type: T.DataType, sql_type: str) -> bool:
        staged = self.type_of(data_type)
        if staged == "text":
            # No stream has a type for clock times, and taps send JSON of databases as text.
            return bool(_CLOCK.fullmatch(sql_type)) or sql_type == "jsonb"
        return any(kind.fullmatch(staged) and kind.fullmatch(sql_type) for kind in (_NUMBER, _TIME))

    def as_text(self, expression: str, staged: str) -> str:  # noqa: ARG002
        return f"CAST({expression} AS text)"

    def create(
        self,
        place: TablePlace,
        columns: Sequence[Column],
        keys: Sequence[str],
        comment: str,
        properties: Mapping[str, str],
    ) -> list[str]:
        created = [
            f"{self.name(c.name)} {self.type_of(c.dtype)}{'' if c.nullable else ' NOT NULL'}"
            for c in columns
        ]
        nullable = {c.name for c in columns if c.nullable}
        if keys and not nullable & set(keys):
            created.append(f"PRIMARY KEY ({self.names(keys)})")
        statements = [f"CREATE TABLE {self.table(place)} ({', '.join(created)}){_with(properties)}"]
        if keys and not nullable & set(keys):
            statements.append(self._key_comment(place))
        if comment:
            statements.append(f"COMMENT ON TABLE {self.table(place)} IS {_literal(comment)}")
        return [*statements, *(s for c in columns for s in self._comment(place, c))]

    def add(self, place: TablePlace, column: Column) -> list[str]:
        kind = self.type_of(column.dtype)
        add = f"ALTER TABLE {self.table(place)} ADD COLUMN {self.name(column.name)} {kind}"
        return [add, *self._comment(place, column)]

    def change_type(
        self, place: TablePlace, column: FoundColumn, data_type: T.DataType
    ) -> list[str]:
        name, kind = self.name(column.name), self.type_of(data_type)
        return [
            f"ALTER TABLE {self.table(place)} ALTER COLUMN {name} TYPE {kind} "
            f"USING CAST({name} AS {kind})"
        ]

    def drop_not_null(self, place: TablePlace, column: FoundColumn) -> list[str]:
        """See `LoadSql`: drop a primary key with the column; rows stay unique by an index."""
        table = self.table(place)
        body = (
            f"DECLARE found text; BEGIN SELECT conname INTO found FROM pg_constraint WHERE "
            f"conrelid = {_literal(table)}::regclass AND contype = 'p' AND conkey @> ARRAY[(SELECT "
            "attnum FROM pg_attribute WHERE attrelid = conrelid AND attname = "
            f"{_literal(column.name)})]; "
            f"IF found IS NOT NULL THEN EXECUTE 'ALTER TABLE ' || {_literal(table)} || "
            "' DROP CONSTRAINT ' || quote_ident(found); END IF; END"
        )
        name = self.name(column.name)
        return [f"DO {_literal(body)}", f"ALTER TABLE {table} ALTER COLUMN {name} DROP NOT NULL"]

    def unique(self, place: TablePlace, keys: Sequence[str], nullable: bool) -> list[str]:
        nulls = " NULLS NOT DISTINCT" if nullable else ""
        created = f"CREATE UNIQUE INDEX ON {self.table(place)} ({self.names(keys)}){nulls}"
        return [created, self._key_comment(place)]

    def drop_key(self, place: TablePlace, index: str) -> list[str]:
        return [
            f"ALTER TABLE {self.table(place)} DROP CONSTRAINT IF EXISTS {self.name(index)}",
            f"DROP INDEX IF EXISTS {self.table(TablePlace(place.schema, index))}",
        ]

    def _key_comment(self, place: TablePlace) -> str:
        """Mark the unique indexes of a table that this transaction has created."""
        body = (
            "DECLARE made regclass; BEGIN FOR made IN SELECT indexrelid FROM pg_index i JOIN "
            "pg_class c ON c.oid = indexrelid WHERE indisunique AND indrelid = "
            f"{_literal(self.table(place))}::regclass AND c.xmin::text::bigint = "
            "txid_current() % 4294967296 LOOP EXECUTE 'COMMENT ON INDEX ' || made || "
            f"' IS ''{KEY_COMMENT}'''; END LOOP; END"
        )
        return f"DO {_literal(body)}"

    def update_from(
        self, table: str, rows: str, sets: Sequence[tuple[str, str]], condition: str
    ) -> str:
        changes = ", ".join(f"{self.name(name)} = {value}" for name, value in sets)
        return f"UPDATE {table} t SET {changes} FROM {rows} WHERE {condition}"

    def lock_rows(self, table: str) -> list[str]:
        return [f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"]

    def may_delete(self, cursor: Cursor, place: TablePlace) -> bool:
        cursor.execute("SELECT has_table_privilege(%s, 'DELETE')", (self.table(place),))
        return bool(cursor.fetchone()[0])

    def cascades(self, cursor: Cursor, place: TablePlace) -> Sequence[str]:
        cursor.execute(_CASCADES, (self.table(place),) * 2)
        return [str(name) for (name,) in cursor.fetchall()]

    def keeps_rows(self, cursor: Cursor, place: TablePlace) -> bool:
        """See `LoadSql`. Looks for rows only if there is a trigger or rule that could keep them."""
        cursor.execute(_KEEPS_ROWS, (self.table(place),))
        if not cursor.fetchone()[0]:
            return False
        cursor.execute(f"SELECT 1 FROM {self.with_arguments(place)} LIMIT 1", ())
        return cursor.fetchone() is not None

    def attached(self, cursor: Cursor, place: TablePlace, columns: Sequence[str]) -> Sequence[str]:
        """See `LoadSql`. Views are no part of it: the server refuses to drop their columns."""
        cursor.execute(_ATTACHED, (self.table(place), list(columns)) * 2)
        return [str(name) for (name,) in cursor.fetchall()]

    def index(self, place: TablePlace, columns: Sequence[str]) -> list[str]:
        return [f"CREATE INDEX ON {self.table(place)} ({self.names(columns)})"]

    def on_conflict(self, place: TablePlace, rows: StagedRows) -> str:
        others = [name for name in rows.values if name not in rows.keys]
        target = f"ON CONFLICT ({self.names(rows.keys)}) DO "
        if not others:
            return f"{target}NOTHING"
        sets = (f"{self.name(name)} = EXCLUDED.{self.name(name)}" for name in others)
        newer = self.newer(self.table(place), "EXCLUDED.{name}", rows)
        return f"{target}UPDATE SET {', '.join(sets)}{f' WHERE {newer}' if newer else ''}"

    def copy(self, place: TablePlace, like: TablePlace) -> str:
        created = f"CREATE {self.unlogged}TABLE {self.table(place)}"
        return f"{created} (LIKE {self.table(like)} INCLUDING DEFAULTS INCLUDING IDENTITY)"

    def digest(self, values: Sequence[tuple[str, str]]) -> str:
        return f"md5(CAST(ROW({', '.join(value for value, _ in values)}) AS text))"

    def number(self, digest: str) -> str:
        return f"CAST(CAST('x' || substr({digest}, 1, 15) AS bit(60)) AS bigint)"

    def example(self, names: Sequence[str]) -> str:
        pairs = (
            f"{_literal(json.dumps(name, ensure_ascii=False))} || ':' || "
            f"coalesce(CAST(to_json({self.name(name)}) AS text), 'null')"
            for name in names
        )
        return "'{' || " + " || ',' || ".join(pairs) + " || '}'"

    def delete_marked(self, place: TablePlace, rows: StagedRows) -> list[str]:
        """See `LoadSql`: compare null keys separately, as indexes and hashes cannot help."""
        pairs = self.key_pairs(rows)
        delete = f"DELETE FROM {self.table(place)} t USING ({self.marked(rows)}) d WHERE "
        if rows.order_by:
            delete += f"{self.newer('t', 'd.{staged}', rows)} AND "
        equal = " AND ".join(f"{key} = {value}" for key, value in pairs)
        if not rows.nullable_keys:
            return [delete + equal]
        same = " AND ".join(f"{key} {self.same} {value}" for key, value in pairs)
        null = " OR ".join(f"{value} IS NULL" for _, value in pairs)
        return [delete + equal, f"{delete}({null}) AND {same}"]

    def instant(self, text: str) -> str:
        return f"TIMESTAMPTZ '{text}+00'"

    def view(
        self,
        place: TablePlace,
        request: TableRequest,
        names: Mapping[str, str],
        rules: NameRules,
    ) -> list[str]:
        own = [name for name in request.struct.names if name != DOCUMENT]
        fields = [] if request.view is None else [f for f in request.view if f.name not in own]
        wishes = {name: name for name in (*own, *(field.name for field in fields))}
        legal = assign_names(wishes, rules, {})
        document = self.name(names[DOCUMENT])
        values = {name: self.name(names[name]) for name in own}
        values |= {field.name: _value(document, field.name, field.dataType) for field in fields}
        columns = ", ".join(
            f"{value} AS {self.name(legal[name])}" for name, value in values.items()
        )
        # Truncated if it is too long.
        short = place.table.encode()[: 63 - len("_view")].decode("utf-8", "ignore")
        view = self.table(TablePlace(place.schema, f"{short}_view"))
        created = f"VIEW {view} AS SELECT {columns} FROM {self.table(place)}"
        refused = _literal(f"the view {view} was not created by target-spark; {_VIEW_HINT}")
        # A new one would lose rights, and views that depend on it would keep the old one.
        body = (
            f"DECLARE present regclass := to_regclass({_literal(view)}); BEGIN "
            "IF present IS NOT NULL AND obj_description(present, 'pg_class') IS DISTINCT FROM "
            f"{_literal(_VIEW_COMMENT)} THEN "
            f"RAISE wrong_object_type USING MESSAGE = {refused}; END IF; "
            f"BEGIN CREATE OR REPLACE {created}; EXCEPTION WHEN invalid_table_definition THEN "
            f"DROP VIEW {view}; CREATE {created}; END; "
            f"COMMENT ON VIEW {view} IS {_literal(_VIEW_COMMENT)}; END"
        )
        return [f"DO {_literal(body)}"]

    def proof(self, cursor: Cursor, rows: int) -> str:
        """See `LoadSql`: the transaction id of row versions, and the number of added rows."""
        cursor.execute("SELECT txid_current() %% 4294967296", ())
        return f"{cursor.fetchone()[0]} {rows}"

    def written(self, cursor: Cursor, place: TablePlace) -> int:
        own = self.proof(cursor, 0).split()[0]
        return int(self._counts(cursor, place, [own]).get(own, "0"))

    def present(self, cursor: Cursor, place: TablePlace, proofs: Mapping[str, str]) -> set[str]:
        """See `LoadSql`. Changed or restored row versions carry another transaction id."""
        cursor.execute("SELECT to_regclass(%s)", (self.table(place),))
        if not proofs or cursor.fetchone()[0] is None:
            return set()
        wanted = {token: proof.split() for token, proof in proofs.items()}
        result = self._counts(cursor, place, (number for number, _ in wanted.values()))
        return {token for token, (number, rows) in wanted.items() if result.get(number) == rows}

    def renewed(
        self, cursor: Cursor, place: TablePlace, proofs: Mapping[str, str]
    ) -> Mapping[str, str]:
        """See `LoadSql`. A changed type moves all rows; a removed version takes some away."""
        if not proofs:
            return {}
        wanted = {token: proof.split()[0] for token, proof in proofs.items()}
        own = self.proof(cursor, 0).split()[0]
        result = self._counts(cursor, place, [own, *wanted.values()])
        created = {}
        for token, number in wanted.items():
            now = number if number in result else own
            created[token] = f"{now} {result[now]}" if now in result else ""
        return created

    def _counts(
        self, cursor: Cursor, place: TablePlace, transactions: Iterable[str]
    ) -> dict[str, str]:
        """Return how many rows each of some transactions has written last; those without none."""
        cursor.execute(
            f"SELECT xmin::text, count(*) FROM {self.with_arguments(place)} "
            "WHERE xmin = ANY(%s::text[]::xid[]) GROUP BY 1",
            (list(transactions),),
        )
        return {number: str(count) for number, count in cursor.fetchall()}

    def identity(self, place: TablePlace) -> str:
        number = f"to_regclass({_literal(self.with_arguments(place))})::oid::text"
        return f"{number} || ' ' || tableoid::text"

    def lock_key(self, name: str) -> int:
        """See `LoadSql`: the number of an advisory lock."""
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)

    def lock(self, cursor: Cursor, name: str) -> None:
        cursor.execute("SELECT pg_advisory_lock(%s)", (self.lock_key(name),))

    def lease_session(self, seconds: int) -> list[str]:
        """See `LoadSql`: by keepalives of the network."""
        return [
            f"SET tcp_keepalives_idle = {max(1, seconds // 2)}",
            f"SET tcp_keepalives_interval = {max(1, seconds // 6)}",
            "SET tcp_keepalives_count = 3",
        ]

    def is_free(self, cursor: Cursor, name: str) -> bool:
        taken = self.take(cursor, name)
        if taken:
            self.unlock(cursor, name)
        return taken

    def _comment(self, place: TablePlace, column: Column) -> list[str]:
        if not column.comment:
            return []
        target = f"{self.table(place)}.{self.name(column.name)}"
        return [f"COMMENT ON COLUMN {target} IS {_literal(column.comment)}"]


def _exact_number(value: str, staged: str, stored: str) -> str:
    """Return a number as another type; digits that it cannot hold are an error of the server."""
    if staged == stored or (staged in _INTEGERS and stored in {*_INTEGERS, "numeric"}):
        return value
    if (staged, stored) == ("real", "double precision"):
        return value  # Exact, although its text has more digits then.
    text = f"CAST({value} AS text)"
    created = f"CAST({text if stored.startswith('numeric') else value} AS {stored})"
    digits = f"CAST({text} AS numeric) = CAST(CAST({created} AS text) AS numeric)"
    return _exact(value, created, stored, digits)


def _exact(value: str, converted: str, stored: str, same: str = "") -> str:
    """Return a converted value; one that has changed is a text that the server refuses."""
    # The server cuts a text for some types instead of refusing it, but none for an integer.
    kind = "integer" if stored in _CUTTING else stored
    refused = f"CAST(CAST({value} AS text) || ' cannot be stored exactly' AS {kind})"
    if kind != stored:
        refused = f"CAST(CAST({refused} AS text) AS {stored})"
    is_same = same or f"{converted} = {value}"
    return f"CASE WHEN {value} IS NULL OR {is_same} THEN {converted} ELSE {refused} END"


def _from_text(text: str, stored: str) -> str:
    """Return a text as another type; what a type would cut off or round is an error."""
    length = _TEXT.fullmatch(stored)
    if length:
        # The server would cut it, also blanks at its end.
        whole = f"CASE WHEN char_length({text}) > {length[1]} THEN {text} || '.' ELSE {text} END"
        # Without a length, which would cut it; keys of this type are equal but for blanks.
        return f"CAST({whole} AS bpchar)" if stored.startswith("character(") else whole
    if _NUMBER.fullmatch(stored):
        return _exact_number(f"CAST({text} AS numeric)", "numeric", stored)
    value = f"CAST({text} AS timestamp with time zone)" if _TIME.fullmatch(stored) else text
    created = f"CAST({value} AS {stored})"
    same = _is_whole(text, created, stored)
    return _exact(text, created, stored, same) if same else created


def _is_whole(text: str, created: str, stored: str) -> str:
    """Return the condition that a value still says all that its text does; empty for always."""
    if _TIME.fullmatch(stored) or _CLOCK.fullmatch(stored):
        whole = "interval" if stored.startswith("interval") else re.sub(r"\(\d\)", "", stored)
        whole = "timestamp with time zone" if _TIME.fullmatch(stored) else whole
        lost = _FINER
        if whole.startswith("time "):
            # The server drops a date, and the time zone for a type that has none.
            whole, lost = "time with time zone", f"{_FINER} AND {text} !~ {_DATED}"
            created = f"CAST({created} AS {whole})"
        return f"{created} = CAST({text} AS {whole}) AND {text} !~ {lost}"
    if stored.startswith("bit") or stored in _CUTTING:
        return f"CAST({created} AS text) = {text}"
    if stored == "money":
        digits = f"regexp_replace({text}, '[^0-9.-]', '', 'g')"
        same = f"CAST({created} AS numeric) = CAST({digits} AS numeric)"
        is_plain = f"{digits} ~ '^-?[0-9]+([.][0-9]+)?$'"
        return f"CASE WHEN {is_plain} THEN {same} ELSE true END"
    return ""


def _element(kind: str) -> tuple[str, str]:
    """Return the value of a text `e` for an array's element of a type, and the value's type."""
    if kind == "bytea":
        # Text of the server's own, or of a binary value of the stream.
        own = f"WHEN starts_with(e, {_HEX}) THEN CAST(e AS bytea)"
        return f"CASE {own} ELSE decode(e, 'base64') END", kind
    whole = "bpchar" if kind.startswith("character(") else "text"
    return _from_text("e", kind), whole if _TEXT.fullmatch(kind) else kind


def _array(value: str, element: str) -> str:
    """Return JSON as an array of one or two dimensions, in its order."""
    is_json = element in {"json", "jsonb"}
    call = "jsonb_array_elements" if is_json else "jsonb_array_elements_text"
    if is_json:
        # Texts are JSON, as for a column that is no array: taps send that of databases so.
        parsed = f"CAST(e #>> '{{}}' AS {element})"
        kind = "CASE jsonb_typeof(e) WHEN 'null' THEN NULL WHEN 'string'"
        item = f"{kind} THEN {parsed} ELSE CAST(e AS {element}) END"
    else:
        item, element = _element(element)

    def items(whole: str) -> str:
        return f"ARRAY(SELECT {item} FROM {call}({whole}) WITH ORDINALITY AS i(e, o) ORDER BY o)"

    inner = f"jsonb_array_elements({value}) WITH ORDINALITY AS w(r, p)"
    rows = f"ARRAY(SELECT {items('r')} FROM {inner} ORDER BY p)"
    nested = "" if is_json else f"WHEN jsonb_typeof({value} -> 0) = 'array' THEN {rows} "
    is_array = f"jsonb_typeof({value}) = 'array'"
    other = f"CAST(CAST({value} AS text) AS {element}[])"
    return f"CASE {nested}WHEN {is_array} THEN {items(value)} ELSE {other} END"


def _literal(text: str) -> str:
    """Return a text as a literal, safe with any setting of the server."""
    return f"E{literal(text)}"


def _with(properties: Mapping[str, str]) -> str:
    for name, value in properties.items():
        if not re.fullmatch(r"[a-z_.]+", name) or not re.fullmatch(r"[\w.+-]+", value):
            raise SettingsError(
                f"'{name}' is not a storage parameter of PostgreSQL",
                where=Where(setting="table_properties"),
            )
    return f" WITH ({', '.join(f'{n} = {v}' for n, v in properties.items())})" if properties else ""


def _value(document: str, name: str, data_type: T.DataType) -> str:
    """Return one property of the record; null if it is not of its type."""
    text, node = (f"{document} {arrow} {_literal(name)}" for arrow in ("->>", "->"))
    kind = PostgreSqlSql().type_of(data_type)
    if kind == "jsonb":
        return f"nullif({node}, 'null')"
    if kind == "text":
        return f"({text})"
    if kind == "bytea":
        return f"decode({text}, 'base64')"
    if isinstance(data_type, _FLOATS):
        words = f"{text} IN ('NaN', 'Infinity', '-Infinity')"
        return f"CASE WHEN jsonb_typeof({node}) = 'number' OR {words} THEN ({text})::{kind} END"
    if isinstance(data_type, T.NumericType):
        number = f"({text})::numeric::{kind}"
        return f"CASE WHEN jsonb_typeof({node}) = 'number' THEN {number} END"
    return f"({text})::{kind}"
