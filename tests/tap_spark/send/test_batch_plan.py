"""Names of batch files, and how left-over rows are combined, without files."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tap_spark.send.batch_plan import (
    FileContent,
    FileNames,
    LeftoverRange,
    WrittenFile,
    absolute_url,
    distribute,
    file_names,
    full_contents,
    row_count,
    whole_leftover,
)

SDK_NAME = re.compile(
    r"tap-spark--orders-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-(\d+)"
    r"\.json\.gz"
)
ROWS = st.lists(st.integers(0, 50), max_size=12)


def leftovers(rows: list[int]) -> list[WrittenFile]:
    return [WrittenFile(f"r{number}", count, 0, True) for number, count in enumerate(rows)]


def test_names_are_those_of_the_sdk() -> None:
    names = file_names("/out", "", "tap-spark", "orders", ".json.gz")
    actual = SDK_NAME.fullmatch(names.url(7, 3).removeprefix("file:///out/"))
    assert actual is not None
    assert actual[1] == "3"


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


@pytest.mark.parametrize("stream", ["k" * 400, "é" * 200, "aé" * 100])
@pytest.mark.parametrize("prefix", ["", "folder/" * 50, "a/b-"])
def test_long_streams_fit_into_names_of_files(tmp_path: Path, stream: str, prefix: str) -> None:
    names = file_names("/out", prefix, "tap-spark", stream, ".parquet.zstd")
    name = names.url(2**40, 2**31).rpartition("/")[2]
    (tmp_path / f".{name}.rest.part").touch()
    assert name.startswith(f"{prefix.rpartition('/')[2]}tap-spark--{stream[:80]}")
    other = file_names("/out", prefix, "tap-spark", stream, ".parquet.zstd")
    assert names.start != other.start


def test_a_name_is_made_of_its_parts() -> None:
    assert FileNames("s3://b", "x-", ".avro").url(255, 2) == "s3://b/x-0000000000ff-2.avro"


@given(ROWS, st.integers(1, 40))
def test_every_row_is_in_one_file_and_only_the_last_is_short(rows: list[int], size: int) -> None:
    full, left = full_contents(map(whole_leftover, leftovers(rows)), size)
    contents = (*full, left) if left else full
    taken = [
        (piece.url, n) for content in contents for piece in content for n in range(*ends(piece))
    ]
    assert taken == [
        (leftover.url, n) for leftover in leftovers(rows) for n in range(leftover.rows)
    ]
    counts = [sum(piece.stop - piece.start for piece in content) for content in contents]
    assert all(count == size for count in counts[:-1])
    assert all(0 < count <= size for count in counts)


def ends(piece: LeftoverRange) -> tuple[int, int]:
    return piece.start, piece.stop


def test_contents_by_example() -> None:
    assert full_contents(map(whole_leftover, leftovers([3, 0, 4])), 5) == (
        ((LeftoverRange("r0", 0, 3), LeftoverRange("r2", 0, 2)),),
        (LeftoverRange("r2", 2, 4),),
    )


@given(st.lists(ROWS, max_size=5), st.integers(1, 40))
def test_rows_that_fill_no_file_wait_for_the_next_slice(slices: list[list[int]], size: int) -> None:
    left: FileContent = ()
    taken: list[tuple[str, int]] = []
    given_rows: list[tuple[str, int]] = []
    for number, rows in enumerate(slices):
        ranges = [
            LeftoverRange(f"{number}-{leftover.url}", 0, leftover.rows)
            for leftover in leftovers(rows)
        ]
        given_rows += [(piece.url, n) for piece in ranges for n in range(piece.stop)]
        full, left = full_contents((*left, *ranges), size)
        assert all(row_count(content) == size for content in full)
        assert row_count(left) < size
        # Else a bookmark of an earlier slice could not be true once there was a full file.
        assert not full or all(piece.url.startswith(f"{number}-") for piece in left)
        taken += [(p.url, n) for content in full for p in content for n in range(*ends(p))]
    assert taken + [(p.url, n) for p in left for n in range(*ends(p))] == given_rows


@given(st.integers(0, 30), st.integers(1, 8))
def test_shares_keep_order_and_balance(files: int, tasks: int) -> None:
    contents = [(LeftoverRange(str(number), 0, 1),) for number in range(files)]
    dealt = list(distribute(contents, tasks))
    assert [content for share in dealt for content in share] == contents
    sizes = [len(share) for share in dealt]
    assert all(sizes)
    assert len(sizes) == min(tasks, files)
    assert all(abs(one - other) <= 1 for one, other in pairwise(sizes))
