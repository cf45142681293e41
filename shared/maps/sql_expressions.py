"""Spark SQL expressions of stream maps: checked by their text, typed by Spark.

An expression sees one record. It cannot read tables, aggregate rows, return several rows, call
Java, read files, the environment or the session, and calls only functions that come with Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from shared.errors import SettingsError, Where, first_line
from shared.settings.checking import nearest
from shared.settings.texts import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType
    from sqlglot import Token, exp

    from shared.maps.transform import SafeSql

MOST_CHARACTERS = 64 * 1024

_HEAD, _TAIL = "SELECT (", "\n)"
_REJECTED_FUNCTIONS = frozenset(
    {"java_method", "reflect", "try_reflect", "input_file_name", "input_file_block_start",
     "input_file_block_length", "current_user", "user", "session_user", "current_catalog",
     "current_database", "current_schema", "current_path", "version", "spark_partition_id",
     "monotonically_increasing_id", "raise_error", "assert_true", "from_protobuf", "to_protobuf",
     "call_function", "call_udf", "udf", "udtf", "pandas_udf", "arrow_udf", "arrow_udtf",
     "broadcast", "expr", "col", "column"}
)  # fmt: skip
# For any quotes that Spark may see around it.
_REJECTED_ANYWHERE = re.compile(
    r"\b(java_method|reflect|try_reflect|input_file_\w+)\b[`\s]*\(", re.IGNORECASE
)
_CALLED = re.compile(r"[A-Za-z_]\w*")
# Words of the grammar that a bracket may follow.
_GRAMMAR = frozenset(
    {"in", "and", "or", "not", "case", "when", "then", "else", "between", "like", "ilike", "rlike",
     "regexp", "is", "as", "any", "all", "some", "div", "from", "for", "placing", "escape",
     "interval", "exists", "cast", "try_cast", "extract", "if", "struct", "array", "map",
     "decimal", "dec", "numeric", "char", "varchar", "character", "string", "int", "integer",
     "bigint", "smallint", "tinyint", "long", "short", "byte", "float", "real", "double",
     "boolean", "date", "timestamp", "timestamp_ntz", "timestamp_ltz", "binary", "both", "leading",
     "trailing", "xor", "void", "variant", "named_struct"}
)  # fmt: skip
# The parser's names of syntax that is not allowed in an expression over one record.
_REJECTED_NODES = {
    **dict.fromkeys(("Query", "Subquery", "Table"), "it reads a table"),
    "Window": "it reads other rows",
    "AggFunc": "it aggregates rows",
    "Star": "'*' is not allowed; name the columns",
    **dict.fromkeys(("Placeholder", "Parameter"), "it has a parameter marker"),
    **dict.fromkeys(("CurrentUser", "SessionUser"), "it reads the session"),
    **dict.fromkeys(("CurrentSchema", "CurrentCatalog", "CurrentDatabase"), "it reads the session"),
}


@dataclass(frozen=True)
class Sql:
    """An SQL expression with valid syntax.

    Attributes:
        text: As the user wrote it.
        names: Every column name in it, with its offset.
        functions: Every function that it calls, with its offset.
    """

    text: str
    names: tuple[tuple[str, int], ...] = ()
    functions: tuple[tuple[str, int], ...] = ()


def sql_expression(text: str, where: Where) -> Sql:
    """Check an SQL expression, without Spark or a schema.

    Raises:
        SettingsError: It cannot be parsed, or does what an expression must not do.
    """
    from sqlglot.errors import ParseError, TokenError  # noqa: PLC0415

    try:
        _check_text(text)
        tokens = _tokens(text)
        functions = tuple(_functions(tokens))
        return Sql(text, tuple(_names(_tree(text), tokens)), functions)
    except _RejectedError as error:
        raise SettingsError(str(error), where=where) from None
    except TokenError:
        reason = "a quote or comment is not closed"
    except ParseError as error:
        reason = _parser_message(error)
    except RecursionError:
        reason = "it is nested too deeply"
    raise SettingsError(f"the SQL expression is invalid: {reason}", where=where)


class _RejectedError(Exception):
    """An expression is rejected; the text says why."""

    def __init__(self, text: str, place: int | None = None) -> None:
        at = "" if place is None else f"at column {place + 1}: "
        super().__init__(f"the SQL expression is rejected: {at}{text}")


def _check_text(text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise _RejectedError(f"it is longer than {MOST_CHARACTERS} characters")
    rejected = _REJECTED_ANYWHERE.search(text)
    if rejected:
        raise _RejectedError(f"the function {rejected[1]!r} is not allowed", rejected.start())
    if "${" in text:
        raise _RejectedError("Spark would substitute a variable for '${'", text.index("${"))


def _tokens(text: str) -> list[Token]:
    import sqlglot  # noqa: PLC0415

    tokens = list(sqlglot.tokenize(text, dialect="spark"))
    for token in tokens:
        if token.comments:
            raise _RejectedError("it contains a comment", token.start)
    return tokens


def _functions(tokens: list[Token]) -> Iterator[tuple[str, int]]:
    """Yield every name before a bracket, quoted or not, that is not a grammar word."""
    for number, token in enumerate(tokens[:-1]):
        name = str(token.text).lower()
        before = tokens[number - 1].text if number else ""
        quoted = _is(token, "IDENTIFIER")
        if tokens[number + 1].text != "(" or _is(token, "STRING"):
            continue
        if not quoted and (name in _GRAMMAR or not _CALLED.fullmatch(name)):
            continue
        if before == ".":
            raise _RejectedError("call functions by their plain names", token.start)
        if name in _REJECTED_FUNCTIONS:
            raise _RejectedError(f"the function {name!r} is not allowed", token.start)
        yield name, token.start


def _is(token: Token, name: str) -> bool:
    return bool(token.token_type.name == name)


def _tree(text: str) -> exp.Expr:
    import sqlglot  # noqa: PLC0415
    from sqlglot import exp  # noqa: PLC0415

    statements = sqlglot.parse(f"{_HEAD}{text}{_TAIL}", dialect="spark")
    select = statements[0]
    expected = {"expressions", "kind"}
    if (
        len(statements) != 1
        or not isinstance(select, exp.Select)
        or any(value for key, value in select.args.items() if key not in expected)
    ):
        raise _RejectedError("it is not a single expression")
    for tree in select.expressions:
        for name, reason in _REJECTED_NODES.items():
            kind = getattr(exp, name, None)
            if kind is not None and any(tree.find_all(kind)):
                raise _RejectedError(reason)
    if len(select.expressions) != 1 or not isinstance(select.expressions[0], exp.Paren):
        raise _RejectedError("it is not a single expression")
    return select.expressions[0]


def _names(tree: exp.Expr, tokens: list[Token]) -> Iterator[tuple[str, int]]:
    """Yield the column names: the first part of each path, which may lead into a struct."""
    from sqlglot import exp  # noqa: PLC0415

    places: dict[str, int] = {}
    for token in tokens:
        places.setdefault(str(token.text).lower(), token.start)
    names = {column.parts[0].name for column in tree.find_all(exp.Column)}
    yield from sorted(((n, places.get(n.lower(), 0)) for n in names), key=lambda name: name[1])


def _parser_message(error: Any) -> str:
    """Return the parser's message, with the position in the expression."""
    first = error.errors[0] if error.errors else {}
    description = str(first.get("description") or "syntax error").rstrip(".")
    line, column = first.get("line"), first.get("col")
    if not isinstance(line, int) or not isinstance(column, int):
        return description
    column -= len(_HEAD) if line == 1 else 0
    place = f"line {line}, column {column}" if line > 1 else f"column {max(column, 1)}"
    return f"{description} at {place}"


def plan_sql(
    sql: Sql,
    struct: StructType,
    own: str | None,
    where: Where,
    spark: Callable[[], SparkSession] | None,
) -> SafeSql:
    """Plan the value of an SQL expression, in which `self` is the property that it makes.

    The session determines the type; without `spark`, the active one.

    Raises:
        SettingsError: It names an unknown column, or Spark rejects it.
    """
    from pyspark.sql import types as T  # noqa: N812, PLC0415

    from shared.maps.transform import SafeSql  # noqa: PLC0415

    try:
        _check_functions(sql)
        columns = struct.names
        text = sql.text if own is None or _spelled("self", columns) else _with_own(sql.text, own)
        reads = frozenset(_column(name, place, columns, own) for name, place in sql.names)
    except _RejectedError as error:
        raise SettingsError(str(error), where=where) from None
    kind = _type_of(text, struct, where, spark)
    if isinstance(kind, T.NullType):
        kind = T.StringType()
        text = f"cast(({text}) as string)"
    return SafeSql(text, kind, {name: struct[name].dataType for name in sorted(reads)})


def _check_functions(sql: Sql) -> None:
    functions = _spark_functions()
    for name, place in sql.functions:
        if name not in functions:
            raise _RejectedError(f"Spark has no function {name!r}{_near(name, functions)}", place)


def _near(name: str, names: Iterable[str]) -> str:
    match = nearest(name, names)
    return f" (nearest: {match!r})" if match else ""


@cache
def _spark_functions() -> frozenset[str]:
    """Return the functions that come with Spark: neither a user's nor a catalog's."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    more = "int len mod left right if nvl date timestamp string sum_distinct bigint float double"
    return (frozenset(name.lower() for name in F.__all__) | set(more.split())) - _REJECTED_FUNCTIONS


def _spelled(name: str, columns: list[str]) -> str | None:
    """Return the column that a name refers to in Spark: an exact match first, then any case."""
    if name in columns:
        return name
    return next((column for column in columns if column.lower() == name.lower()), None)


def _column(name: str, place: int, columns: list[str], own: str | None) -> str:
    spelled = _spelled(name, columns)
    if spelled is None and name.lower() == "self" and own is not None:
        return own
    if spelled is None:
        raise _RejectedError(f"unknown column {name!r}{_near(name, columns)}", place)
    return spelled


def _with_own(text: str, own: str) -> str:
    """Replace `self` by the property's name."""

    tokens = _tokens(text)
    for number in reversed(range(len(tokens))):
        token = tokens[number]
        before = tokens[number - 1].text if number else ""
        if str(token.text).lower() == "self" and not _is(token, "STRING") and before != ".":
            text = text[: token.start] + quoted(own) + text[token.end + 1 :]
    return text


def _type_of(
    text: str, struct: StructType, where: Where, spark: Callable[[], SparkSession] | None
) -> DataType:
    """Return the type from Spark; inside a struct, so that it rejects row generators."""
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    session = SparkSession.active() if spark is None else spark()
    one = F.struct(F.expr(text).alias("value")).alias("one")
    try:
        # Beside a column that differs in every row, Spark also rejects aggregates.
        frame = session.createDataFrame([], struct).select(F.monotonically_increasing_id(), one)
        kind: Any = frame.schema["one"].dataType
    except PySparkException as error:
        reason = re.sub(r"\s*SQLSTATE: \w+\s*$", "", first_line(error))
        text = f"Spark rejects the SQL expression: {reason}"
        raise SettingsError(text, where=where) from None
    data_type: DataType = kind["value"].dataType
    return data_type
