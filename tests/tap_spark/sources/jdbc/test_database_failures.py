"""Failures of databases: one clear line without secrets, and retries if they may help."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SettingsError, SourceError, Where
from tap_spark.sources import source_failures
from tap_spark.sources.source_failures import (
    TransientSourceError,
    database_error,
    one_line,
    source_error,
    with_retries,
)
from tap_spark.stream_config import ConnectionConfig

WHERE = Where(stream="s")


class FakeJavaError(Exception):
    """As py4j raises them: a text with the Java stack, and the exception itself."""

    def __init__(self, message: str, state: str | None) -> None:
        super().__init__(
            f"An error occurred while calling o1.load.\n: org.postgresql.util.PSQLException: "
            f"{message}\n\tat org.postgresql.core.X(X.java:1)"
        )
        self.java_exception = FakeCause(state)


class FakeCause:
    def __init__(self, state: str | None) -> None:
        self.state = state

    def getSQLState(self) -> str | None:  # noqa: N802
        return self.state

    def getCause(self) -> None:  # noqa: N802
        return None


@pytest.mark.parametrize(
    ("state", "passes", "hint"),
    [
        ("28P01", False, "'password'"),
        ("28000", False, "'password'"),
        ("3D000", False, "'url'"),
        ("42501", False, "grant SELECT"),
        ("42P01", False, "--discover"),
        ("42703", False, "--discover"),
        ("25006", False, "must not write"),
        ("55000", False, "REFRESH"),
        ("22012", False, ""),
        ("57014", False, "timeout"),
        ("08001", True, "host"),
        ("08006", True, "host"),
        ("57P01", True, "host"),
        ("57P03", True, "host"),
        ("40001", True, "host"),
        ("40P01", True, "host"),
        ("53300", True, "limits"),
        ("22023", True, "snapshot"),
        ("XX000", False, ""),
    ],
)
def test_what_an_sqlstate_means(state: str, passes: bool, hint: str) -> None:
    error = database_error(FakeJavaError("FATAL: something", state), WHERE)
    assert error is not None
    assert error.retryable is passes
    assert isinstance(error, TransientSourceError) is passes
    assert hint in str(error)
    assert str(error).startswith("stream 's': the database says: FATAL: something")
    assert error.exit_code == (6 if passes else 3)
    assert "\n" not in str(error)


def test_a_parameter_without_a_value_is_no_lost_snapshot() -> None:
    text = "No value specified for parameter 1."
    error = database_error(FakeJavaError(text, "22023"), WHERE)
    assert error is not None
    assert (error.retryable, "'query'" in str(error)) == (False, True)


@pytest.mark.parametrize(
    ("text", "passes", "hint"),
    [
        ('FATAL: password authentication failed for user "x"', False, "'password'"),
        ('ERROR: relation "x" does not exist', False, "--discover"),
        ("ERROR: permission denied for table x", False, "grant"),
        ("FATAL: terminating connection due to administrator command", True, "host"),
        ("Connection to db:5432 refused.", True, "host"),
        ("ERROR: cannot execute INSERT in a read-only transaction", False, "must not write"),
    ],
)
def test_over_spark_connect_the_text_decides(text: str, passes: bool, hint: str) -> None:
    error = database_error(Exception(f"(org.postgresql.util.PSQLException) {text}"), WHERE)
    assert error is not None
    assert (error.retryable, hint in str(error)) == (passes, True)


def test_other_errors_are_not_of_a_database() -> None:
    assert database_error(ValueError("no"), WHERE) is None
    assert database_error(Exception("[PATH_NOT_FOUND] Path does not exist"), WHERE) is None


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.ClassNotFoundException: org.x.Driver\n at spark.jdbc.DriverRegistry",
        "(java.lang.ClassNotFoundException) org.x.Driver",
    ],
)
def test_a_missing_driver_is_reported(text: str) -> None:
    error = database_error(Exception(text), WHERE)
    assert "driver org.x.Driver is not installed" in str(error)
    assert "'package'" in str(error)
    other = "(java.lang.ClassNotFoundException) org.x.Codec"
    assert database_error(Exception(other), WHERE) is None


def test_the_network_cause_is_reported() -> None:
    error = FakeJavaError("The connection attempt failed.", "08001")
    error.args = (error.args[0] + "\nCaused by: java.net.UnknownHostException: no.such.host",)
    assert "UnknownHostException: no.such.host" in str(database_error(error, WHERE))


@given(st.text(min_size=1, max_size=20).filter(str.strip))
def test_secrets_are_never_shown(secret: str) -> None:
    text = f"cannot log in with <{secret}> to jdbc:x://h/d?password={secret}&a=b"
    assert f"<{secret}>" not in one_line(text, [secret])


def test_secrets_of_urls_are_hidden_without_knowing_them() -> None:
    assert one_line("bad url jdbc:x://h/d?user=a&password=hunter2&ssl=1") == (
        "bad url jdbc:x://h/d?user=a&password=***&ssl=1"
    )


def test_sources_explain_errors_of_databases() -> None:
    error = source_error("s", FakeJavaError("FATAL: the end", "57P01"))
    assert error.retryable
    assert "the end [57P01]" in str(error)


def attempts(states: list[str | None], retries: int) -> tuple[Any, list[float]]:
    waits: list[float] = []
    left = list(states)

    def action() -> str:
        state = left.pop(0)
        if state is None:
            return "done"
        raise FakeJavaError("no", state)

    connection = ConnectionConfig("pg", url="jdbc:postgresql://h/d", retries=retries)
    try:
        return with_retries(action, connection, sleep=waits.append), waits
    except SourceError as error:
        return error, waits


def test_what_passes_is_tried_again() -> None:
    assert attempts(["08006", "57P03", None], 3) == ("done", [0.5, 1.0])


def test_trying_again_has_a_bound() -> None:
    error, waits = attempts(["08006"] * 9, 3)
    assert waits == [0.5, 1.0, 2.0]
    assert "connections['pg']" in str(error)
    assert "(tried 4 times)" in str(error)
    # The stream is not to begin again what has been tried enough.
    assert not isinstance(error, TransientSourceError)
    assert error.exit_code == 6


def test_what_does_not_pass_is_not_tried_again() -> None:
    error, waits = attempts(["28P01"] * 3, 3)
    assert (waits, error.retryable) == ([], False)
    error, waits = attempts(["08006"], 0)
    assert waits == []


def test_our_own_errors_and_bugs_are_not_changed() -> None:
    connection = ConnectionConfig("pg", url="jdbc:postgresql://h/d")
    for error in (SettingsError("x"), ValueError("x")):

        def action(error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error)):
            with_retries(action, connection, sleep=lambda _: None)


def test_waits_never_grow_beyond_a_limit() -> None:
    _, waits = attempts(["08006"] * 12, 10)
    assert max(waits) == source_failures.LONGEST_WAIT
