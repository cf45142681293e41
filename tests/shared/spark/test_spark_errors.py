"""Texts that Spark really produced, and the one line each becomes."""

from __future__ import annotations

import pytest

from shared.errors import (
    ClosedPipeError,
    DestinationError,
    RecordError,
    SettingsError,
    SingerSparkError,
    SourceError,
    SparkLostError,
    SparkStartError,
    Where,
)
from shared.spark.spark_errors import explain, explain_environment, plain_path

WHERE = Where(stream="orders")
READ_FAILED = """An error occurred while calling o60.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 \
times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (127.0.0.1 executor driver): \
org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file \
file:///data/a.parquet.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError
Caused by: java.lang.RuntimeException: file:/data/a.parquet is not a Parquet file."""
CAST = """[CAST_INVALID_INPUT] The value 'abc' of the type "STRING" cannot be cast to "INT" \
because it is malformed. Correct the value as per the syntax, or change its target type. Use \
`try_cast` to tolerate malformed input and return NULL instead. SQLSTATE: 22018
== DataFrame ==
"cast" was called from"""
WORKER = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent \
failure: Lost task 0.0 (127.0.0.1 executor driver): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "/x/worker.py", line 3369, in main
    process()
  File "/x/loader.py", line 12, in write
    raise RecordError("line 3: 'a' is not an integer")
{}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException"""


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/no/such.csv. SQLSTATE: 42K03",
            SourceError,
            "file '/no/such.csv': Path does not exist: file:/no/such.csv.",
        ),
        (
            "[AMBIGUOUS_REFERENCE_TO_FIELDS] Ambiguous reference to the field `a`.",
            SourceError,
            "field `a`. (the names differ only by case: set spark.conf 'spark.sql.caseSensitive'",
        ),
        (READ_FAILED, SourceError, "file '/data/a.parquet'"),
        (CAST, RecordError, "The value 'abc' of the type"),
        ("java.lang.OutOfMemoryError: Java heap space", SparkStartError, "ran out of memory"),
        (
            "java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory",
            SparkStartError,
            "Spark cannot start a thread (allow more threads: `ulimit -u`",
        ),
        ("java.io.IOException: No space left on device", DestinationError, "no space left"),
        ("Answer from Java side is empty", SparkLostError, "Spark has gone away"),
        ("Python worker exited unexpectedly (crashed)", SparkLostError, "worker of Spark died"),
        ("[SOMETHING_NEW] Never seen before. SQLSTATE: 12345", SourceError, "Never seen before."),
        ('No FileSystem for scheme "s3"', SourceError, "hadoop-aws"),
        ("just words\nand more", SourceError, "just words"),
        ("Spark does not support time fields", SourceError, "a dropped one (let the writer"),
        ("x: Unsupported logical type: TIME_MICROS", SourceError, "one (let the writer"),
        ("Cannot convert unsupported type to Spark: geometry", SourceError, "one (let the writer"),
        ("This table is configured to only allow appends. If", SourceError, "(use the load method"),
        (
            "An error occurred while calling o78.load.\n: org.apache.spark.SparkException: Aborted"
            "\n\tat x.Y\nCaused by: java.io.FileNotFoundException: File file:/a.csv does not exist",
            SourceError,
            "File file:/a.csv does not exist (check the path; executors on other machines",
        ),
        (
            "Exiting due to error from cluster scheduler: Master removed our application: FAILED",
            SparkLostError,
            "Spark has gone away",
        ),
        ("", SourceError, "RuntimeError"),
    ],
)
def test_known_texts(text: str, kind: type[SingerSparkError], shown: str) -> None:
    error = explain(RuntimeError(text), WHERE)
    assert type(error) is kind
    assert "stream 'orders'" in str(error)
    assert shown in str(error)
    assert "\n" not in str(error)
    assert "SQLSTATE" not in str(error)


def test_a_rule_of_a_table_is_no_failure_to_retry() -> None:
    text = "This table is configured to only allow appends. If you would like to permit updates"
    error = explain(RuntimeError(text), WHERE, DestinationError)
    assert (type(error), error.exit_code) == (DestinationError, SettingsError.exit_code)
    assert not error.retryable


@pytest.mark.parametrize(
    ("last", "kind", "shown"),
    [
        ("shared.errors.RecordError: line 3: 'a' is not an integer", RecordError, "line 3: 'a'"),
        ("RecordError: line 3", RecordError, "line 3"),
        ("OSError: [Errno 28] No space left on device", DestinationError, "space"),
        ("PermissionError: [Errno 13] Permission denied: '/x'", DestinationError, "permission"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/x'", DestinationError, "/x"),
        ("ZeroDivisionError: division by zero", SingerSparkError, "ZeroDivisionError: division"),
        ("ModuleNotFoundError: No module named 'pyarrow'", SparkStartError, "'pyarrow' (Spark's"),
    ],
)
def test_python_on_executors(last: str, kind: type[SingerSparkError], shown: str) -> None:
    error = explain(RuntimeError(WORKER.format(last)), WHERE)
    assert type(error) is kind
    assert shown in str(error)


def test_an_unknown_failure_becomes_what_the_caller_says() -> None:
    assert type(explain(RuntimeError("x"), WHERE, DestinationError)) is DestinationError


def test_the_class_of_the_error_tells_too() -> None:
    class Py4JNetworkError(Exception):
        pass

    assert isinstance(explain(Py4JNetworkError("reset")), SparkStartError)


def test_our_own_error_keeps_its_place_and_gets_what_is_missing() -> None:
    mine = ClosedPipeError("gone", where=Where(file="f"))
    actual = explain(mine, Where(stream="s", file="other", line=0, setting="x"))
    assert actual is mine
    assert actual.where == Where(stream="s", file="f", line=0, setting="x")


def test_data_is_no_failure_of_the_environment() -> None:
    assert explain_environment(RuntimeError(CAST)) is None
    assert explain_environment(RuntimeError(READ_FAILED)) is None


@pytest.mark.parametrize("path", ["/data/a.parquet", "s3a://bucket/key"])
@pytest.mark.parametrize("before", [": ", ": org.apache.spark.SparkException: x y\nCaused by: "])
def test_a_message_that_is_a_path_follows_its_class(path: str, before: str) -> None:
    text = f"An error occurred while calling o7.load.\n{before}java.nio.file.NoSuchFileException: "
    assert (
        explain(RuntimeError(f"{text}{path}\n\tat x.Y")).message == f"NoSuchFileException: {path}"
    )


def test_a_long_reason_is_cut() -> None:
    assert len(explain(RuntimeError("x" * 10_000)).message) == 400


def test_plain_path() -> None:
    assert plain_path("file:///a/b") == plain_path("file:/a/b") == "/a/b"
    assert plain_path("s3://a/b") == "s3://a/b"


@pytest.mark.parametrize(
    ("executor", "text", "says"),
    [
        ("10.0.0.3 executor 1", "OSError: [Errno 13] Permission denied", True),
        ("10.0.0.3 executor 1", "botocore.exceptions.NoCredentialsError: Unable to locate", True),
        ("10.0.0.3 executor 1", "shared.errors.RecordError: 'x' is no number", False),
        ("10.0.0.3 executor driver", "OSError: [Errno 13] Permission denied", False),
    ],
)
def test_what_an_executor_lacks_names_its_machine(executor: str, text: str, says: bool) -> None:
    failure = f"Lost task 0.3 in stage 1.0 (TID 3) ({executor}): PythonException: Traceback (most "
    error = explain(RuntimeError(f"{failure}recent call last):\n  File x\n{text}\n"))
    assert ("(on 10.0.0.3)" in str(error)) is says, str(error)
