"""What a comparison of a table with its source reports. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.errors import DifferenceError
from target_spark.core.differences import RangeDifference, TableDifference, Verification

ONE = RangeDifference(3, 5, 6, {"vanished": 2, "changed": 1}, {"vanished": '{"id":1}'})
TWO = RangeDifference(9, 1, 2, {"doubled": 1}, {})
ACTUAL = TableDifference("orders", "'/t'", 100, 102, (ONE, TWO))


def test_what_is_left_is_what_was_not_repaired() -> None:
    assert ACTUAL.left == "1 changed, 2 vanished, 1 doubled"
    assert replace(ACTUAL, repaired=("missing", "changed", "vanished")).left == "1 doubled"
    lacking = replace(ACTUAL, ranges=(), missing_columns=("a", "b"))
    assert lacking.left == "without the columns a, b"


def test_rows_of_all_ranges_count() -> None:
    rows = {9: (1, 2), 3: (5, 6), 4: (94, 94)}
    actual = {one.range: (one.keys, one.examples) for one in (TWO, ONE)}
    assert TableDifference.of("orders", "'/t'", rows, actual) == ACTUAL


def test_the_report_of_a_table() -> None:
    report = ACTUAL.to_json()
    assert report["equal"] is False
    assert report["ranges"][0] == {
        "range": 3,
        "source_rows": 5,
        "table_rows": 6,
        "keys": {"vanished": 2, "changed": 1},
        "examples": {"vanished": '{"id":1}'},
    }
    assert replace(ACTUAL, ranges=()).to_json()["equal"] is True


def test_many_rows_are_deleted_only_with_consent() -> None:
    reported: list[TableDifference] = []
    wanted = Verification(reported.append)
    wanted.check_vanished(ACTUAL)
    few = replace(ACTUAL, table_rows=19)
    replace(wanted, force=True).check_vanished(few)
    replace(wanted, most_vanished=0.5).check_vanished(few)
    assert not reported
    replace(wanted, most_vanished=1).check_vanished(few, {"b"})
    replace(wanted, force=True).check_vanished(ACTUAL, {"b"})
    with pytest.raises(DifferenceError, match="in the input, but may be of the stream 'b'"):
        wanted.check_vanished(ACTUAL, {"b"})
    assert reported.pop() == ACTUAL
    with pytest.raises(DifferenceError, match="nothing was changed: 2 of 19 rows of '/t' are not"):
        wanted.check_vanished(few)
    assert reported == [few]


def test_what_a_repair_ends() -> None:
    def repaired(*, can_delete: bool = True, part: bool = False, **how: bool) -> str:
        wanted = Verification(print, **how)  # type: ignore[arg-type]
        return " ".join(wanted.repaired(can_delete=can_delete, part=part))

    assert repaired() == "missing changed vanished"
    assert repaired(can_delete=False) == "missing changed"
    assert repaired(deletes=True) == "vanished"
    assert repaired(part=True) == "missing changed", "a row may only have left the range"
    assert repaired(part=True, force=True) == "missing changed vanished"
    assert repaired(part=True, deletes=True) == ""
