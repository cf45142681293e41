"""The summary of a run on a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from shared.singer.run_report import run_lines


def facts(program: str = "target-spark", **supplied: Any) -> dict[str, Any]:
    return {"program": program, "error": None, "seconds": 0.52, "streams": {}, **supplied}


CREATE = "create the table with the columns id bigint, a decimal(10,2), _sdc_received_at timestamp"
DESTINATION = {"format": "parquet", "place": "loaded"}


def table(rows: int, *changes: str, place: str = "/w/loaded/orders", **more: int) -> dict[str, Any]:
    return {"committed": rows, "rejected": 0, "place": place, "changes": changes, **more}


def stream(tables: dict[str, Any], **supplied: Any) -> dict[str, Any]:
    return {"tables": tables, "flush_seconds": 0.5, "engine": "threads", **supplied}


def test_what_was_loaded_where() -> None:
    run = facts(destination=DESTINATION, streams={"orders": stream({"orders": table(3, CREATE)})})
    assert list(run_lines(run, 80, "/w")) == [
        "orders  3 rows  2 new columns  0 rejected  → loaded/orders (parquet)  0.5 s",
        "target-spark: 3 rows loaded in 0.5 s, by threads",
    ]


def test_what_was_sent() -> None:
    one = {"method": "FULL_TABLE", "sent": 1, "bytes": 1234, "seconds": 100, "engine": "spark"}
    other = {"method": "INCREMENTAL", "sent": 2000, "bytes": 12, "error": "x"}
    run = facts("tap-spark", streams={"b": one, "a": other}, error="1 of 2 streams failed")
    assert list(run_lines(run, 80)) == [
        "a  2,000 rows  INCREMENTAL  12 B    failed",
        "b  1 row       FULL_TABLE   1.2 kB  1 min 40 s",
        "tap-spark: failed after 0.5 s, 2,001 rows of 2 streams sent, by spark",
    ]


def test_next_steps() -> None:
    changes = "add the column 'a' (string)", "store 'A B' as 'a_b'", "widen 'x' from int to bigint"
    changes += "mark 1 row of older versions", "remove the rows of older versions"
    orders = table(3, *changes, rejected=2)
    run = facts(
        destination={**DESTINATION, "dead_letters": "rejected"},
        streams={"orders": stream({"orders": orders}, rejected=2, undeclared={"z": 1, "y": 2})},
    )
    first, _, *steps = run_lines(run, 200, "/w")
    assert first.split("  ")[2:4] == [
        "1 new column, 1 renamed, 1 change",
        "older rows removed, 1 older row marked",
    ]
    assert steps == [
        "next: 2 records rejected: load them again from rejected",
        "next: 1 older row marked in _sdc_deleted_at: filter them out, or set hard_delete: true",
        "next: store 'A B' as 'a_b': choose another name by a stream map",
        "next: not in the schema, and left out: y, z",
    ]


@pytest.mark.parametrize("width", [80, 50])
def test_lines_fit_and_do_not_steer(width: int) -> None:
    names = "n" * 90, "e\x1b[2J"
    streams = {name: stream({name: table(3, place=f"/w/{name}")}) for name in names}
    lines = list(run_lines(facts(destination=DESTINATION, streams=streams), width, "/w"))
    assert all(len(line) <= max(width, 70) and "\x1b" not in line for line in lines)
    assert all("3 rows" in line for line in lines[:2])


def test_many_streams_are_a_few_lines() -> None:
    streams = {f"s{n}": stream({f"s{n}": table(1)}) for n in range(100)}
    lines = list(run_lines(facts(streams=streams), 80))
    assert len(lines) == 42
    assert lines[-2:] == [
        "and 60 more: see --summary",
        "target-spark: 100 rows of 100 streams loaded in 0.5 s, by threads",
    ]


def test_nothing_to_tell() -> None:
    assert list(run_lines(facts(), 80)) == []
    assert list(run_lines(facts(streams={"a": stream({})}, dry_run=True), 80)) == []
