"""The lines of a dry run."""

from __future__ import annotations

from target_spark.core.differences import DryRun, PlannedTable


def line(planned: PlannedTable, versions: dict[str, int] | None = None, **counts: int) -> str:
    actual = DryRun({planned.stream: planned}, versions or {})
    [text] = actual.lines({planned.stream: counts})
    return text


def test_rows_and_columns() -> None:
    planned = PlannedTable("s", "'/t/s'", "upsert", ("add the column 'a' (bigint)",))
    assert line(planned, committed=1200, rejected=2, filtered=1) == (
        "stream 's': would upsert 1,200 rows into '/t/s' (2 rejected, 1 filtered); "
        "add the column 'a' (bigint)"
    )
    assert line(PlannedTable("s", "t", "append-only"), committed=1) == (
        "stream 's': would append 1 row to t; leave its columns as they are"
    )


def test_replacements() -> None:
    assert line(PlannedTable("s", "t", "overwrite"), committed=2).startswith(
        "stream 's': would replace the rows of t by 2 rows; "
    )
    assert line(PlannedTable("s", "t", "overwrite", backfill=True), committed=2).startswith(
        "stream 's': would replace a range of t by 2 rows; "
    )


def test_versions_and_unknown_columns() -> None:
    text = line(PlannedTable("s", "t", "history", None), {"s": 7})
    assert text.startswith(
        "stream 's': would add 0 rows to the history in t; change its columns if"
    )
    assert text.endswith("; activate the table version 7")
