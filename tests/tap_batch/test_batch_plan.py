"""Names of batch files and the joining of left-over rows, without files."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tap_spark.batch_plan import (
    FileNames,
    Join,
    Piece,
    Written,
    absolute_url,
    file_names,
    full_joins,
    piece_of,
    plan_joins,
    rows_of,
    shares,
)

SDK_NAME = re.compile(
    r"tap-spark--orders-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-(\d+)"
    r"\.json\.gz"
)
ROWS = st.lists(st.integers(0, 50), max_size=12)


def rests(rows: list[int]) -> list[Written]:
    return [Written(f"r{number}", count, 0, True) for number, count in enumerate(rows)]


def test_names_are_those_of_the_sdk() -> None:
    names = file_names("/out", "", "tap-spark", "orders", ".json.gz")
    found = SDK_NAME.fullmatch(names.url(7, 3).removeprefix("file:///out/"))
    assert found is not None
    assert found[1] == "3"


def test_tasks_attempts_and_slices_never_share_a_name() -> None:
    one, other = (file_names("/out", "", "t", "s", ".csv") for _ in range(2))
    urls = {n.url(task, number) for n in (one, other) for task in (0, 1) for number in (1, 2)}
    assert len(urls) == 8


@pytest.mark.parametrize(
    ("root", "url"),
    [
        ("/out", "file:///out"),
        ("/out/", "file:///out"),
        ("file:///out/", "file:///out"),
        ("file:/out", "file:///out"),
        ("s3://bucket/a/", "s3://bucket/a"),
        ("memory://x", "memory://x"),
    ],
)
def test_roots_become_urls(root: str, url: str) -> None:
    assert absolute_url(root) == url


def test_a_relative_root_is_seen_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/usr")
    assert absolute_url("out") == "file:///usr/out"


@pytest.mark.parametrize(
    ("stream", "safe"),
    [("public-orders", "public-orders"), ("a b/c", "a_b_c"), ("../x?#%*", ".._x____"), ("é", "é")],
)
def test_streams_are_safe_in_a_name(stream: str, safe: str) -> None:
    names = file_names("s3://b", "pre/", "tap", stream, ".parquet")
    assert names.start.startswith(f"pre/tap--{safe}-")
    assert names.url(0, 1).startswith(f"s3://b/pre/tap--{safe}-")


def test_a_name_is_made_of_its_parts() -> None:
    assert FileNames("s3://b", "x-", ".avro").url(255, 2) == "s3://b/x-0000000000ff-2.avro"


@given(ROWS, st.integers(1, 40))
def test_every_row_is_in_one_file_and_only_the_last_is_short(rows: list[int], size: int) -> None:
    joins = plan_joins(map(piece_of, rests(rows)), size)
    taken = [(piece.url, n) for join in joins for piece in join for n in range(*ends(piece))]
    assert taken == [(rest.url, n) for rest in rests(rows) for n in range(rest.rows)]
    counts = [sum(piece.stop - piece.start for piece in join) for join in joins]
    assert all(count == size for count in counts[:-1])
    assert all(0 < count <= size for count in counts)


def ends(piece: Piece) -> tuple[int, int]:
    return piece.start, piece.stop


def test_joins_by_example() -> None:
    assert plan_joins(map(piece_of, rests([3, 0, 4])), 5) == (
        (Piece("r0", 0, 3), Piece("r2", 0, 2)),
        (Piece("r2", 2, 4),),
    )


@given(st.lists(ROWS, max_size=5), st.integers(1, 40))
def test_what_fills_no_file_waits_for_the_next_slice(slices: list[list[int]], size: int) -> None:
    left: Join = ()
    taken: list[tuple[str, int]] = []
    given_rows: list[tuple[str, int]] = []
    for number, rows in enumerate(slices):
        pieces = [Piece(f"{number}-{rest.url}", 0, rest.rows) for rest in rests(rows)]
        given_rows += [(piece.url, n) for piece in pieces for n in range(piece.stop)]
        full, left = full_joins((*left, *pieces), size)
        assert all(rows_of(join) == size for join in full)
        assert rows_of(left) < size
        # Else a bookmark of an earlier slice could not be true once there was a full file.
        assert not full or all(piece.url.startswith(f"{number}-") for piece in left)
        taken += [(p.url, n) for join in full for p in join for n in range(*ends(p))]
    assert taken + [(p.url, n) for p in left for n in range(*ends(p))] == given_rows


@given(st.integers(0, 30), st.integers(1, 8))
def test_shares_keep_order_and_balance(files: int, tasks: int) -> None:
    joins = [(Piece(str(number), 0, 1),) for number in range(files)]
    dealt = list(shares(joins, tasks))
    assert [join for share in dealt for join in share] == joins
    sizes = [len(share) for share in dealt]
    assert all(sizes)
    assert len(sizes) == min(tasks, files)
    assert all(abs(one - other) <= 1 for one, other in pairwise(sizes))
