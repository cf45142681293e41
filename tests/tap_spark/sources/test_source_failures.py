"""Errors of Spark, and the one line that users see."""

from __future__ import annotations

import pytest

from tap_spark.sources.source_failures import source_error

USER = (
    '  File "/home/me/rest.py", line 7, in read\n    yield from self.ask(1)\n               ^^^^\n'
)
LIBRARY = '  File "/usr/lib/python3.11/urllib/request.py", line 643, in http_error\n    raise\n'
INSTALLED = '  File "/v/lib/python3.11/site-packages/theirs/a.py", line 3, in read\n    raise\n'
SPARK = (
    '  File "/v/lib/python3.11/site-packages/pyspark/worker.py", line 1, in main\n    process()\n'
)
OURS = '  File "/v/lib/python3.11/site-packages/tap_spark/line_chunks.py", line 9, in f\n    x\n'
HEAD = "An exception was thrown from the Python worker.\nTraceback (most recent call last):\n"


def shown(*parts: str) -> str:
    text = str(source_error("s", RuntimeError("".join(parts))))
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        (SPARK + USER, "/home/me/rest.py', line 7"),
        (SPARK + USER + LIBRARY, "/home/me/rest.py', line 7"),
        (SPARK + INSTALLED, "/v/lib/python3.11/site-packages/theirs/a.py', line 3"),
    ],
)
def test_python_code_of_users(frames: str, place: str) -> None:
    text = shown(
        HEAD, frames, "x.Error: it broke\nsecond line\n\n\tat org.apache.spark.Some(A.java)"
    )
    assert (
        text
        == f"stream 's', file '{place}: the source's own code failed: x.Error: it broke second line"
    )


def test_only_the_last_traceback_counts() -> None:
    first = HEAD + SPARK + "KeyError: 'a'\n\nDuring handling of it, another exception occurred:\n\n"
    text = shown(first, HEAD, USER, "ValueError: b\n SQLSTATE: 38000")
    assert text.endswith("failed: ValueError: b")


@pytest.mark.parametrize("frames", [SPARK, SPARK + OURS])
def test_python_code_of_the_programs_is_not_user_code(frames: str) -> None:
    assert "the source's own code" not in shown(HEAD, frames, "ValueError: b")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("1 tasks (2.0 GiB) is bigger than spark.driver.maxResultSize (1 GiB)", "BATCH"),
        ("Could not serialize object: TypeError: cannot pickle 'lock' object", "rows()"),
    ],
)
def test_hints_by_text(text: str, hint: str) -> None:
    assert hint in source_error("s", RuntimeError(text)).hint


def test_marks_in_a_plan_are_no_rows() -> None:
    """Columns that raise our errors are a part of what Spark shows."""
    columns = "raise_error([tap-spark], to_json(a), [/tap-spark])"
    plan = f"[DATATYPE_MISMATCH] It is not.;\n'Project [{columns}]"
    assert shown(plan) == "stream 's': Spark cannot read it: It is not."


def test_names_in_a_plan_are_not_conditions() -> None:
    text = shown(
        "[TABLE_OR_VIEW_NOT_FOUND] The table or view `A` cannot be found. Verify it.\n"
        "To tolerate the error, use IF EXISTS. SQLSTATE: 42P01; line 1 pos 14;\n"
        "'Project [*]\n+- 'UnresolvedRelation [A], [], false\n"
    )
    assert "The table or view `A` cannot be found" in text
    assert "its catalog is not in 'spark.conf'" in text
