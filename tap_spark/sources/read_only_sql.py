"""Check that an SQL text is exactly one statement that reads."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from shared.errors import SettingsError, Where

if TYPE_CHECKING:
    from sqlglot import Token, exp

PARSERS = {
    "spark": "spark",
    "postgresql": "postgres",
    "mysql": "mysql",
    "sqlserver": "tsql",
    "oracle": "oracle",
    "sqlite": "sqlite",
    "duckdb": "duckdb",
}
"""Our names of dialects, and the parser's; any other is parsed as standard SQL."""
HINT = "give one SELECT (or WITH ... SELECT, VALUES) that changes nothing"
# Parts of a query that change something, by the parser's names.
_CHANGES = {
    "DML": "changes data",
    "DDL": "changes data",
    "Drop": "changes data",
    "Command": "is not understood",
    "Into": "SELECT INTO writes a table",
    "Lock": "locks rows (FOR UPDATE, FOR SHARE)",
    "QueryTransform": "TRANSFORM runs a program",
}
# Words that a query never has outside of quotes; for texts that the parser cannot read.
_WORDS = re.compile(
    "INSERT|UPDATE|DELETE|MERGE|REPLACE|UPSERT|CREATE|DROP|ALTER|TRUNCATE|GRANT|REVOKE|CALL|EXEC|"
    "EXECUTE|DO|COPY|INTO|SET|LOCK|BEGIN|COMMIT|ROLLBACK|ATTACH|PRAGMA|VACUUM|LOAD|OUTFILE|DUMPFILE"
)
_FIRST = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "FROM", "("})
_MARK = re.compile(r"\?{1,2}")
_DEEP = "it is nested too deeply"


def check_reads(sql: str, dialect: str, where: Where) -> None:
    """Reject everything that is not exactly one statement that reads.

    The text does not show what functions do that the query calls.

    Args:
        sql: The statement; a semicolon and comments may follow it.
        dialect: A key of `PARSERS`, or any other name.
        where: Its stream and setting.

    Raises:
        SettingsError: It is not one statement, changes something, or cannot be understood.
    """
    problem = _problem(sql, PARSERS.get(dialect, ""))
    if problem:
        raise SettingsError(f"the query is not a read: {problem}", where=where, hint=HINT)


def as_subquery(sql: str, dialect: str, mark: str = "??") -> str:
    """Enclose a checked statement in brackets, without its final semicolon.

    JDBC drivers take a `?` for a parameter. PostgreSQL has such operators: there it is doubled.

    Args:
        sql: The statement.
        dialect: Short name of the database.
        mark: What `?` and `??` become in operators of PostgreSQL; `?` for COPY.
    """
    from sqlglot import TokenType  # noqa: PLC0415

    pieces, at = [], 0
    for token in _tokens(sql, PARSERS.get(dialect, "")):
        if token.token_type is TokenType.SEMICOLON:
            sql = sql[: token.start]
            break
        raw = sql[token.start : token.end + 1]
        if dialect == "postgresql" and raw == token.text:
            pieces += [sql[at : token.start], _MARK.sub(mark, raw)]
            at = token.end + 1
    # The line end closes a comment that would hide the bracket.
    return f"({''.join(pieces)}{sql[at:]}\n)"


def _problem(sql: str, parser: str) -> str | None:
    import sqlglot  # noqa: PLC0415
    from sqlglot.errors import ParseError, TokenError  # noqa: PLC0415

    # It would warn of every unknown statement, which is rejected anyway.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        tokens = _tokens(sql, parser)
    except TokenError:
        return "a quote or comment in it does not end"
    problem = _problem_of_tokens(sql, tokens, parser)
    if problem:
        return problem
    try:
        parsed = sqlglot.parse(sql, dialect=parser or None)
    except ParseError:
        return _problem_of_words(tokens)
    except RecursionError:
        return _DEEP
    statements = [item for item in parsed if item is not None and item.key != "semicolon"]
    if len(statements) != 1:
        return f"it has {len(statements) or 'no'} statements"
    return _problem_of_tree(statements[0])


def _problem_of_tokens(sql: str, tokens: list[Token], parser: str) -> str | None:
    if any(comment.startswith(("!", "M!")) for token in tokens for comment in token.comments):
        return "a comment in it would be executed"
    if parser != "postgres" and any(token.text == sql[token.start] == "?" for token in tokens):
        return "it has a parameter ('?'), which nothing sets"
    return None


def _problem_of_tree(statement: exp.Expr) -> str | None:
    from sqlglot import exp  # noqa: PLC0415

    for name, text in _CHANGES.items():
        if any(statement.find_all(getattr(exp, name))):
            return text
    if not isinstance(statement, (exp.Query, exp.Values)):
        return f"it is a statement of the kind {statement.key.upper()}"
    return None


def _problem_of_words(tokens: list[Token]) -> str | None:
    """Check the words alone: a parser does not know everything that a database can do."""
    from sqlglot import TokenType  # noqa: PLC0415

    quoted = (TokenType.IDENTIFIER, TokenType.STRING)
    words = ["" if token.token_type in quoted else token.text.upper() for token in tokens]
    if words and words[-1] == ";":
        words.pop()
    if not words or words[0] not in _FIRST:
        return "it does not begin with SELECT, WITH, VALUES or TABLE"
    if ";" in words:
        return "it has several statements"
    bad = next((word for word in words if _WORDS.fullmatch(word)), None)
    return f"the word {bad} is not allowed in a read" if bad else None


def _tokens(sql: str, parser: str) -> list[Token]:
    import sqlglot  # noqa: PLC0415

    return list(sqlglot.tokenize(sql, dialect=parser or None))
