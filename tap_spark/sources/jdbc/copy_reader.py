"""Rows of PostgreSQL as Arrow batches, by binary COPY: in the driver, and in tasks of Spark.

ADBC's driver sends a SELECT as `COPY (…) TO STDOUT (FORMAT binary)`, and decodes the rows in C++.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pyarrow as pa

from tap_spark.sources.jdbc.metadata import begin_statements
from tap_spark.sources.source_failures import COPY_BEGIN, COPY_END

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


BATCH_BYTES, FILE_BATCH_BYTES = 512 * 1024, 8 * 1024 * 1024
"""Bytes of a batch whose rows go on at once, and of one for files; a longer row is one alone."""
_SERVER_WORDS = re.compile(r"((?:ERROR|FATAL|PANIC)):\s+([^\n]+)")
_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
_CONNECT = re.compile(r"Failed to connect: ([^\n]+)")
_STATES = (
    ("password authentication failed", "28P01"),
    ("no pg_hba.conf entry", "28000"),
    ("does not exist", "3D000"),
    ("too many", "53300"),
    ("remaining connection slots", "53300"),
    ("the database system is", "57P03"),
)
"""SQLSTATEs of refused connections, of which libpq has the words only."""
_LOST = "08006"


@dataclass(frozen=True)
class CopyLogin:
    """Where and how to connect; picklable, and silent about secrets."""

    host: str
    port: int
    database: str
    user: str
    password: str | None = field(default=None, repr=False)
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def uri(self) -> str:
        """Return the address for libpq, with the password."""
        login = quote(self.user, safe="")
        if self.password is not None:
            login += ":" + quote(self.password, safe="")
        host = f"[{self.host}]" if ":" in self.host else quote(self.host, safe="")
        # Set, so that variables of the environment do not count.
        fixed = {"client_encoding": "UTF8", "options": ""}
        query = urlencode({**fixed, **dict(self.parameters)}, quote_via=quote)
        return f"postgresql://{login}@{host}:{self.port}/{quote(self.database, safe='')}?{query}"


class CopyError(RuntimeError):
    """A failure of the server or the connection."""

    def __init__(self, message: str, state: str) -> None:
        self.state = state
        # One argument, so that it can be pickled.
        super().__init__(COPY_BEGIN + json.dumps({"message": message, "state": state}) + COPY_END)

    def __reduce__(self) -> tuple[Any, ...]:
        parts = json.loads(str(self)[len(COPY_BEGIN) : -len(COPY_END)])
        return CopyError, (parts["message"], parts["state"])


class CopySession:
    """A transaction that reads.

    Args:
        begin: Statements that begin it.

    Raises:
        CopyError: The server cannot be reached, or rejects a statement.
    """

    def __init__(self, login: CopyLogin, begin: Sequence[str]) -> None:
        from adbc_driver_postgresql import dbapi  # noqa: PLC0415

        self.login = login
        self._connection = _explained(lambda: dbapi.connect(login.uri, autocommit=False))
        try:
            for statement in begin:
                self.rows(statement, copy=False)
        except BaseException:
            self.close()
            raise

    def __call__(self, query: str, texts: Sequence[str] = ()) -> list[dict[str, Any]]:
        """See `QueryRunner`: names are in lower case in the queries of PostgreSQL's metadata."""
        del texts
        return self.rows(query.strip())

    def struct(self, query: str) -> StructType:
        """Raise NotImplementedError: only Spark's reader has types of queries."""
        raise NotImplementedError(query)

    def rows(self, query: str, *, copy: bool = True) -> list[dict[str, Any]]:
        return [row for batch in self.batches(query, copy=copy) for row in batch.to_pylist()]

    def batches(
        self,
        query: str,
        schema: pa.Schema | None = None,
        size: int = BATCH_BYTES,
        *,
        copy: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a SELECT.

        Args:
            query: The SELECT, or (without `copy`) another statement.
            schema: Types of the columns; None for those that the database has.
            size: Bytes of a batch.

        Raises:
            CopyError: The server rejects the query, or the connection is lost.
        """
        from adbc_driver_postgresql import StatementOptions  # noqa: PLC0415

        options = {
            StatementOptions.USE_COPY.value: "true" if copy else "false",
            StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(size),
        }
        with closing(self._connection.cursor(adbc_stmt_kwargs=options)) as cursor:
            _explained(lambda: cursor.execute(query))
            reader = _explained(lambda: _reader(cursor))
            while (batch := _explained(lambda: next(reader, None))) is not None:
                yield batch if schema is None else in_types(batch, schema)

    def close(self) -> None:
        """End the transaction and the connection; never fails."""
        with suppress(Exception):
            self._connection.close()


def _reader(cursor: Any) -> Iterator[pa.RecordBatch]:
    """Return the batches of a result; failures of ADBC's own reader have their SQLSTATE."""
    own = getattr(getattr(cursor, "_results", None), "reader", None)
    return iter(cursor.fetch_record_batch() if own is None else own)


def read_batches(
    login: CopyLogin,
    begin: Sequence[str],
    query: str,
    schema: pa.Schema,
    size: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a SELECT over a connection of its own; see `CopySession.batches`."""
    with closing(CopySession(login, begin)) as session:
        yield from session.batches(query, schema, size)


def in_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows in other types.

    ADBC has `numeric` as text, with every digit. Dates are numbers of days.

    Raises:
        CopyError: A text is not UTF-8, in a database that does not check it.
    """
    columns = [_typed(array, field) for array, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _typed(array: pa.Array, wanted: pa.Field) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_string(wanted.type):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CopyError("ERROR: a text is not UTF-8", "22021") from error
    return array if array.type == wanted.type else array.cast(wanted.type)


def _explained(call: Any) -> Any:
    """Call ADBC; convert what it raises."""
    try:
        return call()
    except CopyError:
        raise
    except Exception as error:
        raise copy_error(error) from error


def copy_error(error: BaseException) -> CopyError:
    """Return the server's words, without the statement, and the SQLSTATE."""
    text = str(error)
    said = _SERVER_WORDS.search(text)
    refused = _CONNECT.search(text)
    state = getattr(error, "sqlstate", None) or next(iter(_STATE.findall(text)), None)
    first = text.partition("\n")[0]
    message = f"{said[1]}: {said[2]}" if said else refused[1] if refused else first
    if not state and (refused or not said):
        codes = (code for words, code in _STATES if words in message)
        state = next(codes, "08001" if refused else _LOST)
    return CopyError(message.strip(), state or "")


@dataclass(frozen=True)
class CopySource:
    """A database that is read by COPY."""

    login: CopyLogin
    begin: tuple[str, ...] = begin_statements(None)

    def at(self, snapshot: str | None) -> CopySource:
        """Return the database as of an exported snapshot."""
        return replace(self, begin=begin_statements(snapshot))

    def check(self, query: str) -> None:
        """Raise CopyError if the server cannot be reached, or rejects a SELECT."""
        # What the server rejects is an error here, not that of a job.
        with closing(CopySession(self.login, self.begin)) as session:
            session.rows(f"{query} LIMIT 0")

    def rows(
        self, query: str, schema: pa.Schema, size: int = BATCH_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a SELECT; see `CopySession.batches`."""
        return read_batches(self.login, self.begin, query, schema, size)
