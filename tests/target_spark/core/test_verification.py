"""What a comparison of a table with its source reports. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.errors import DifferenceError
from target_spark.core.verification import RangeDifference, TableDifference, check_vanished

ONE = RangeDifference(3, 5, 6, {"vanished": 2, "changed": 1}, {"vanished": '{"id":1}'})
TWO = RangeDifference(9, 1, 2, {"doubled": 1}, {})
FOUND = TableDifference("orders", "'/t'", 100, 102, (ONE, TWO))


def test_what_is_left_is_what_was_not_repaired() -> None:
    assert FOUND.left == "1 changed, 2 vanished, 1 doubled"
    assert replace(FOUND, repaired=("missing", "changed", "vanished")).left == "1 doubled"
    lacking = replace(FOUND, ranges=(), missing_columns=("a", "b"))
    assert lacking.left == "without the columns a, b"


def test_the_report_of_a_table() -> None:
    report = FOUND.to_json()
    assert report["equal"] is False
    assert report["ranges"][0] == {
        "range": 3,
        "source_rows": 5,
        "table_rows": 6,
        "keys": {"vanished": 2, "changed": 1},
        "examples": {"vanished": '{"id":1}'},
    }
    assert replace(FOUND, ranges=()).to_json()["equal"] is True


def test_many_rows_are_deleted_only_with_consent() -> None:
    check_vanished(FOUND, force=False)
    few = replace(FOUND, table_rows=19)
    check_vanished(few, force=True)
    with pytest.raises(DifferenceError, match="nothing was changed: 2 of 19 rows of '/t' are not"):
        check_vanished(few, force=False)
