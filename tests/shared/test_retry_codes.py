"""Each exit code answers whether the same run can succeed later if nobody changes anything."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg import exceptions as iceberg

from shared import errors
from shared.cli import documented_error
from shared.errors import (
    DestinationError,
    PartialRunError,
    SingerSparkError,
    SourceError,
    Where,
    error_text,
)
from shared.spark.spark_errors import explain, start_error
from shared.storage.access import StorageOptions, remote, storage_error
from tap_spark.sources.source_failures import all_of, source_error
from target_spark.destinations.databases.database import Database, explain_errors
from target_spark.destinations.databases.database_tables import DatabaseAddress
from target_spark.destinations.databases.mysql.mysql_database import MySql
from target_spark.destinations.databases.postgresql.postgresql_database import PostgreSql
from target_spark.destinations.folders.table_folder import write_error, writing
from target_spark.destinations.lakes import lake_table
from target_spark.destinations.lakes.lake_table import one_writer

PLACE = DatabaseAddress("postgresql", ("h",), (1,), "db", "user", "password", {})
LASTS, LATER = 2, 6
URL = "s3://b/t"


class Py4JJavaError(Exception):
    """Named as the real one."""


class ClientError(Exception):
    """Like botocore's."""

    def __init__(self, code: str) -> None:
        super().__init__(f"An error occurred ({code})")
        self.response = {"Error": {"Code": code}}


def code_of(error: BaseException) -> int:
    existing = documented_error(error)
    assert existing is not None
    same = next(kind for kind in errors.EXIT_CODES if kind.exit_code == existing.exit_code)
    assert existing.retryable == same.retryable
    return existing.exit_code


def on_disk(number: int) -> SingerSparkError:
    try:
        raise write_error(
            "/lake/t", error := OSError(number, os.strerror(number), "/lake/t")
        ) from error
    except DestinationError as failed:
        return failed


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, LATER),
        (errno.EDQUOT, LATER),
        (errno.EIO, LATER),
        (errno.ESTALE, LATER),
        (errno.EMFILE, LATER),
        (errno.ENOENT, LATER),  # removed while running: the next run creates it
        (errno.EACCES, LASTS),
        (errno.EPERM, LASTS),
        (errno.EROFS, LASTS),
        (errno.ENOTDIR, LASTS),
        (errno.EEXIST, LASTS),
        (errno.EISDIR, LASTS),
        (errno.ENAMETOOLONG, LASTS),
        (errno.ELOOP, LASTS),
    ],
    ids=lambda value: errno.errorcode.get(value, ""),
)
def test_disks(number: int, code: int) -> None:
    assert code_of(on_disk(number)) == code


@pytest.mark.parametrize(
    ("folder", "code"), [("{}/file/t", LASTS), ("{}/" + "x" * 300, LASTS)], ids=["file", "long"]
)
def test_folders(tmp_path: Path, folder: str, code: int) -> None:
    (tmp_path / "file").touch()
    path = folder.format(tmp_path)
    with pytest.raises(DestinationError) as created, writing(path):
        Path(path).mkdir(parents=True)
    assert code_of(created.value) == code
    with pytest.raises(DestinationError) as locked, one_writer(f"{path}/t"):
        pass
    assert code_of(locked.value) == code


def test_a_lock_that_others_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_table, "LONGEST_WAIT", 0)
    table = str(tmp_path / "t")
    with (
        one_writer(table),
        pytest.raises(DestinationError) as caught,
        one_writer(table),
    ):
        pass
    assert code_of(caught.value) == LATER


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ClientError("AccessDenied"), LASTS),
        (ClientError("403"), LASTS),
        (ClientError("SignatureDoesNotMatch"), LASTS),
        (ClientError("InvalidAccessKeyId"), LASTS),
        (ClientError("NoSuchBucket"), LASTS),
        (ClientError("InvalidBucketName"), LASTS),
        (ClientError("NoSuchUpload"), LATER),
        (ClientError("SlowDown"), LATER),
        (ClientError("503"), LATER),
        (ClientError("InternalError"), LATER),
        (ConnectionRefusedError(111, "Connection refused"), LATER),
        (TimeoutError("timed out"), LATER),
        (type("gaierror", (OSError,), {})(-2, "Name or service not known"), LASTS),
        (type("gaierror", (OSError,), {})(-3, "Temporary failure in name resolution"), LATER),
    ],
    ids=str,
)
def test_object_stores(error: Exception, code: int) -> None:
    cause = storage_error(error, "s3://b/t")
    failed = write_error("s3://b/t", cause)
    failed.__cause__ = cause
    assert code_of(failed) == code


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("s4://b/t", {}, "Protocol not known: s4"),
        ("webhdfs://h/t", {"kerberos": True}, "No module named 'requests_kerberos'"),
    ],
)
def test_storages_that_cannot_be_used(url: str, options: dict[str, Any], text: str) -> None:
    hint = rf"{text} \(check the scheme"
    with pytest.raises(DestinationError, match=hint) as caught, writing(url):
        remote(url, StorageOptions(options))
    assert code_of(caught.value) == LASTS


def test_a_scheme_that_an_executor_lacks() -> None:
    for text in ("Protocol not known: s4", "Please install gcsfs to access Google Storage"):
        failed = DestinationError("cannot write batch files")
        failed.__cause__ = RuntimeError(f"the storage failed: {text}")
        assert code_of(failed) == LASTS


def postgresql(state: str) -> Callable[[], Exception]:
    def error() -> Exception:
        import psycopg

        return psycopg.errors.lookup(state)("text of the server")

    return error


def no_connection(text: str) -> Callable[[], Exception]:
    def error() -> Exception:
        import psycopg

        return psycopg.OperationalError(f"connection failed: {text}")

    return error


def mysql(number: int, text: str = "text of the server") -> Callable[[], Exception]:
    def error() -> Exception:
        import pymysql

        return pymysql.err.OperationalError(number, text)

    return error


UNREACHED = "Can't connect to MySQL server on 'h' "


@pytest.mark.parametrize(
    ("database", "error", "code"),
    [
        (PostgreSql(), no_connection('FATAL:  password authentication failed for "u"'), LASTS),
        (PostgreSql(), no_connection('FATAL:  database "x" does not exist'), LASTS),
        (PostgreSql(), no_connection('FATAL:  no pg_hba.conf entry for host "h"'), LASTS),
        (PostgreSql(), no_connection("failed to resolve host 'h': [Errno -2] Name or service not "
                                     "known"), LASTS),
        (PostgreSql(), no_connection("failed to resolve host 'h': [Errno -3] Temporary failure in "
                                     "name resolution"), LATER),
        (PostgreSql(), no_connection("Connection refused"), LATER),
        (PostgreSql(), no_connection("timeout expired"), LATER),
        (PostgreSql(), no_connection("FATAL:  sorry, too many clients already"), LATER),
        (PostgreSql(), no_connection("FATAL:  the database system is starting up"), LATER),
        (PostgreSql(), postgresql("42501"), LASTS),  # no right
        (PostgreSql(), postgresql("3F000"), LASTS),  # no schema
        (PostgreSql(), postgresql("25006"), LASTS),  # read-only server
        (PostgreSql(), postgresql("23505"), LASTS),  # several rows of a key
        (PostgreSql(), postgresql("2BP01"), LASTS),  # a view needs the column
        (PostgreSql(), postgresql("42704"), LASTS),  # no such type
        (PostgreSql(), postgresql("42P01"), LATER),  # dropped while running
        (PostgreSql(), postgresql("40P01"), LATER),  # deadlock
        (PostgreSql(), postgresql("55P03"), LATER),  # lock
        (PostgreSql(), postgresql("53100"), LATER),  # full disk
        (PostgreSql(), postgresql("53200"), LATER),  # memory
        (PostgreSql(), postgresql("57014"), LATER),  # statement_timeout
        (PostgreSql(), postgresql("57P01"), LATER),  # shutdown
        (MySql(), mysql(1045), LASTS),  # password
        (MySql(), mysql(1044), LASTS),
        (MySql(), mysql(1142), LASTS),
        (MySql(), mysql(1049), LASTS),  # database
        (MySql(), mysql(1290), LASTS),  # read-only
        (MySql(), mysql(3948), LASTS),  # local_infile
        (MySql(), mysql(2003, f"{UNREACHED}([Errno 111] Connection refused)"), LATER),
        (MySql(), mysql(2003, f"{UNREACHED}(timed out)"), LATER),
        (MySql(), mysql(2003, f"{UNREACHED}([Errno -2] Name or service not known)"), LASTS),
        (MySql(), mysql(2003, f"{UNREACHED}([Errno -3] Temporary failure in name resolution)"),
         LATER),
        (MySql(), mysql(1040), LATER),  # too many connections
        (MySql(), mysql(1146), LATER),  # dropped while running
        (MySql(), mysql(1205), LATER),  # lock
        (MySql(), mysql(1213), LATER),  # deadlock
        (MySql(), mysql(1114), LATER),  # full disk
        (MySql(), mysql(2013), LATER),  # connection lost
    ],
)  # fmt: skip
def test_databases(database: Database, error: Callable[[], Exception], code: int) -> None:
    with pytest.raises(SingerSparkError) as caught, explain_errors(database, PLACE):
        raise error()
    assert code_of(caught.value) == code, str(caught.value)


def delta(name: str, text: str) -> Exception:
    import deltalake.exceptions

    kind: type[Exception] = getattr(deltalake.exceptions, name)
    return kind(text)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (delta("CommitFailedError", "Failed to commit: version 4 exists"), LATER),
        (delta("TableNotFoundError", "no log files"), LATER),
        (delta("DeltaProtocolError", "the table needs the writer feature 'x'"), LASTS),
        (delta("SchemaMismatchError", "Cannot cast schema"), LASTS),
        (delta("DeltaError", "Kernel error: Invalid JSON in the log"), LASTS),
        (OSError("Generic S3 error: status 403 Forbidden: AccessDenied"), LASTS),
        (OSError("Generic S3 error: status 404: NoSuchBucket"), LASTS),
        (OSError("Generic S3 error: error sending request: Connection refused"), LATER),
        (iceberg.CommitFailedException("branch main has changed"), LATER),
        (iceberg.CommitStateUnknownException("timed out"), LATER),
        (iceberg.NoSuchTableError("db.t"), LATER),
        (iceberg.ServiceUnavailableError("503"), LATER),
        (iceberg.UnauthorizedError("401"), LASTS),
        (iceberg.ForbiddenError("403"), LASTS),
        (iceberg.NoSuchNamespaceError("db"), LASTS),
        (iceberg.ValidationError("cannot write partition values"), LASTS),
        (Py4JJavaError("io.delta.exceptions.ConcurrentAppendException: x"), LATER),
        (Py4JJavaError("org.apache.iceberg.exceptions.CommitFailedException: x"), LATER),
        (Py4JJavaError("org.apache.spark.sql.AnalysisException: [TABLE_OR_VIEW_NOT_FOUND]"), LATER),
        (Py4JJavaError("org.apache.spark.sql.AnalysisException: [CANNOT_UP_CAST]"), LASTS),
        (Py4JJavaError("java.net.ConnectException: Connection refused"), LATER),
        (Py4JJavaError("org.apache.hadoop.security.AccessControlException: Permission denied"),
         LASTS),
        (Py4JJavaError("com.fasterxml.jackson.core.JsonParseException: Unexpected"), LASTS),
        (Py4JJavaError("java.io.IOException: No space left on device"), LATER),
        (Py4JJavaError('UnsupportedFileSystemException: No FileSystem for scheme "s3"'), LASTS),
        (Py4JJavaError("PermissionError: [Errno 13] Permission denied: '/x'"), LASTS),
        (Py4JJavaError("java.lang.OutOfMemoryError: Java heap space"), 7),
        (Py4JJavaError("Python worker exited unexpectedly (crashed)"), 16),
        (Py4JJavaError("Cannot call methods on a stopped SparkContext"), 16),
        (Py4JJavaError("ModuleNotFoundError: No module named 'x'"), 7),
    ],
    ids=str,
)  # fmt: skip
def test_lakes_and_spark(error: Exception, code: int) -> None:
    with pytest.raises(SingerSparkError) as caught:
        try:
            raise error
        except Exception as cause:
            raise explain(cause, Where(stream="s"), DestinationError) from cause
    assert code_of(caught.value) == code, str(caught.value)


class EndingError(Exception):
    """Like those of PySpark: they ask Java for their text, which ends before the run does."""

    has_ended = False

    def __str__(self) -> str:
        assert not self.has_ended
        return str(self.args[0])


@pytest.mark.parametrize(
    ("text", "code"),
    [("AccessDenied", LASTS), ("Connection refused", LATER), ("something else", LATER)],
)
def test_a_code_outlives_spark(text: str, code: int) -> None:
    error = EndingError(text)
    failed = explain(error, Where(stream="s"), DestinationError)
    failed.__cause__ = error
    error.has_ended = True
    assert code_of(failed) == code


def test_an_unexpected_error_of_spark_is_one_line_after_its_end() -> None:
    error = EndingError("x")
    error.has_ended = True
    assert error_text(error) == "EndingError"
    assert error_text(ValueError("a\nb")) == "ValueError: a b"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (storage_error(ConnectionRefusedError(111, "Connection refused"), URL), LATER),
        (storage_error(ClientError("SlowDown"), URL), LATER),
        (storage_error(ClientError("503"), URL), LATER),
        (storage_error(TimeoutError("timed out"), URL), LATER),
        (storage_error(type("gaierror", (OSError,), {})(-3, "Temporary failure"), URL), LATER),
        (storage_error(type("gaierror", (OSError,), {})(-2, "Name or service not known"), URL), 3),
        (storage_error(ClientError("AccessDenied"), URL), 3),
        (storage_error(ClientError("NoSuchKey"), URL), 3),
        (OSError(errno.EIO, "Input/output error", "/data/a.csv"), LATER),
        (OSError(errno.ENOENT, "No such file or directory", "/data/a.csv"), 3),
        (OSError("no number: Connection refused"), 3),
        (ValueError("the value 'Connection refused'"), 3),
    ],
    ids=str,
)
def test_sources_of_files(error: Exception, code: int) -> None:
    failed = SourceError("cannot be read")
    failed.__cause__ = error
    assert code_of(failed) == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("java.net.ConnectException: Connection refused", LATER),
        ("java.nio.file.AccessDeniedException: s3a://b/t: Status Code: 403", 3),
        ("S3Exception: Please reduce your request rate (Service: S3, Status Code: 503)", LATER),
        ("[FAILED_READ_FILE.NO_HINT] Error while reading file s3a://b/t. SQLSTATE: KD001\n"
         "Caused by: java.net.SocketTimeoutException: Read timed out", LATER),
        ("[FAILED_READ_FILE.NO_HINT] Error while reading file s3a://b/t. SQLSTATE: KD001\n"
         "Caused by: java.lang.RuntimeException: t is not a Parquet file", 3),
        ("[FAILED_READ_FILE.NO_HINT] Error while reading file t.avro. SQLSTATE: KD001\n"
         "\tat org.apache.spark.sql.QueryExecution$.withInternalError(QueryExecution.scala:717)\n"
         "Caused by: java.io.IOException: Block size negative or too large: -6", 3),
        ("[CAST_INVALID_INPUT] The value 'timed out' is malformed. SQLSTATE: 22018", 3),
        ('[tap-spark]{"problem": "a row", "value": "Connection refused"}[/tap-spark]', 3),
        ('Traceback (most recent call last):\n  File "/mine/source.py", line 3, in read\n'
         "    get()\nTimeoutError: [Errno 110] Connection timed out", LATER),
        ('Traceback (most recent call last):\n  File "/mine/source.py", line 3, in read\n'
         "    get()\nKeyError: 'x'", 3),
        ("java.util.concurrent.ExecutionException: "
         "org.apache.kafka.common.errors.TimeoutException: Call: listTopics", LATER),
    ],
    ids=str,
)  # fmt: skip
def test_sources_of_spark(text: str, code: int) -> None:
    assert code_of(source_error("s", Py4JJavaError(text))) == code


def test_several_failures_of_sources_pass_if_all_do() -> None:
    passing, lasting = SourceError("x", passes=True), SourceError("y")
    assert [code_of(all_of(actual)) for actual in ([passing, passing], [passing, lasting])] == [
        6,
        3,
    ]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), LATER),
        ("java.io.IOException: No space left on device", LATER),
        (OSError(errno.EACCES, "Permission denied"), 7),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 16),
        ("Server access error: java.net.ConnectException: Connection refused", 16),
        ("unresolved dependency: x:y:1", 7),
        ("Invalid maximum heap size: -Xmx9x", 7),
    ],
    ids=str,
)
def test_starts_of_spark(reason: BaseException | str, code: int) -> None:
    assert code_of(start_error("Spark could not be started", reason)) == code


def test_a_name_of_a_stream_tells_nothing() -> None:
    """Texts of ours hold names of users, which may look like reasons."""
    assert code_of(DestinationError("another run has taken over 'Forbidden_SCHEMA_x'")) == LATER


@pytest.mark.parametrize("kind", errors.EXIT_CODES, ids=lambda kind: kind.__name__)
def test_the_meaning_of_a_code_fits_it(kind: type[SingerSparkError]) -> None:
    """A class that says of itself what a person must change promises no retry."""
    lasting = re.compile(r"permission|password|not installed|missing|wrong|invalid|not a valid")
    assert not (kind.retryable and lasting.search(kind.meaning)), kind.meaning
    assert kind.retryable is dict.fromkeys((6, 8, 12, 13, 16, 17, 129, 130, 143), True).get(
        kind.exit_code, False
    )


@pytest.mark.parametrize("failed", (1, 5, 6, 2_000))
def test_the_error_about_many_streams_is_one_that_can_be_read(failed: int) -> None:
    errors = [SourceError("the table is gone", where=Where(stream=f"s{n}")) for n in range(failed)]
    text = str(PartialRunError.of(errors, 3_000))
    assert text.startswith(f"{failed} of 3000 streams failed: stream 's0': the table is gone")
    assert text.count("the table is gone") == min(failed, 5)
    assert ("; and 1995 more, which the log has" in text) == (failed == 2_000)
