"""Groups of commits, and commits from Delta's history and Iceberg's metadata, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tap_spark.sources.lakes.delta_source import (
    DeltaVersion,
    names_at,
    rows_in_log,
    stale_columns,
)
from tap_spark.sources.lakes.iceberg_source import IcebergSnapshot, newest_file, parse_metadata
from tap_spark.sources.lakes.lake_source import (
    ChangeReadMode,
    LoggedCommit,
    group_commits,
    split_in_half,
    with_compared,
)

commits = st.lists(
    st.tuples(st.sampled_from(ChangeReadMode), st.integers(0, 2_000), st.booleans()), max_size=40
).map(
    lambda items: [
        LoggedCommit(n + 1, n, n, how, rows, alone=alone)
        for n, (how, rows, alone) in enumerate(items)
    ]
)


def test_the_log_of_another_table_tells_nothing(tmp_path: Path) -> None:
    """The package decodes the name of a folder."""
    for name, rows in (("a:b", 5), ("a%3Ab", 2)):
        deltalake.write_deltalake(str(tmp_path / "new"), pa.table({"n": range(rows)}))
        (tmp_path / "new").rename(tmp_path / name)
    assert rows_in_log(str(tmp_path / "a:b"), 0) == 5
    assert rows_in_log(str(tmp_path / "a%3Ab"), 0) is None


@given(commits, st.integers(1, 6))
def test_parts_keep_every_commit_in_order_and_hold_to_the_bounds(
    log: list[LoggedCommit], most: int
) -> None:
    actual = group_commits(log, max_commits=most, max_rows=1_000)
    assert [commit for part in actual for commit in part] == log
    for part in actual:
        assert len({commit.how for commit in part}) == 1
        assert not any(commit.alone for commit in part[1:])
        if part[0].how is ChangeReadMode.FEED:
            assert len(part) <= most
            assert len(part) == 1 or sum(commit.rows for commit in part) <= 1_000
        if part[0].how is ChangeReadMode.APPENDED:
            assert len(part) == 1


@given(commits)
def test_what_must_be_compared_is_compared_at_once(log: list[LoggedCommit]) -> None:
    joined = with_compared(log)
    compared = [n for n, commit in enumerate(joined) if commit.how is ChangeReadMode.COMPARE]
    wanted = [n for n, commit in enumerate(log) if commit.how is ChangeReadMode.COMPARE]
    assert compared == (list(range(wanted[0], wanted[-1] + 1)) if wanted else [])
    assert [commit.position for commit in joined] == [commit.position for commit in log]


def test_halves_lose_nothing() -> None:
    log = tuple(LoggedCommit(n, n - 1, n) for n in range(5))
    first, second = split_in_half(log)
    assert first + second == log
    assert first
    assert second


def version(number: int, operation: str, **parameters: str) -> DeltaVersion:
    return DeltaVersion(number, number, operation, parameters, {}, blind_append=False)


def rename(number: int, old: str, new: str) -> DeltaVersion:
    return version(number, "RENAME COLUMN", oldColumnPath=old, newColumnPath=new)


def test_names_follow_chains_and_swaps_of_renames() -> None:
    log = [rename(2, "a", "x"), rename(3, "b", "a"), rename(4, "x", "b"), rename(6, "c", "d")]
    assert names_at(log, 1) == {("a",): "b", ("b",): "a", ("d",): "c"}
    assert names_at(log, 2) == {("a",): "b", ("b",): "x", ("d",): "c"}
    assert names_at(log, 4) == {("d",): "c"}
    assert names_at(log, 6) == {}


def test_columns_are_stale_when_renamed_or_added_again() -> None:
    dropped = version(2, "DROP COLUMNS", columns='["a", "s.`x.y`"]')
    assert stale_columns([rename(1, "a", "b")], ["id", "b"]) == ["b"]
    assert stale_columns([rename(1, "s.x", "s.y")], ["id", "s"]) == ["s"]
    assert stale_columns([dropped], ["id", "s"]) == []
    added = version(3, "ADD COLUMNS", columns="[]")
    assert stale_columns([dropped, added], ["id", "a", "s"]) == ["a", "s"]
    assert stale_columns([added], ["id", "a"]) == []
    assert stale_columns([rename(1, "`a.b`", "`c``d`")], ["c`d"]) == ["c`d"]


def test_rows_of_a_version_are_counted_and_junk_is_not() -> None:
    created = DeltaVersion(
        3, 5, "MERGE", {}, {"numTargetRowsInserted": "3", "numOutputRows": "x"}, False
    )
    commit = created.commit()
    assert (commit.position, commit.before, commit.rows, commit.only_new) == (3, 2, 3, False)
    assert not commit.alone
    assert rename(4, "a", "b").commit().alone
    assert version(5, "WRITE", mode="Overwrite").commit().alone
    assert version(5, "CREATE OR REPLACE TABLE AS SELECT").replaces_rows


def field(number: int, name: str, dtype: Any = "string", **more: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "required": False, "type": dtype, **more}


def schema(number: int, *fields: dict[str, Any], keys: tuple[int, ...] = ()) -> dict[str, Any]:
    return {
        "type": "struct",
        "schema-id": number,
        "identifier-field-ids": list(keys),
        "fields": list(fields),
    }


def snapshot(number: int, parent: int | None, operation: str, **counts: str) -> dict[str, Any]:
    summary = {"operation": operation, **{k.replace("_", "-"): v for k, v in counts.items()}}
    return {
        "snapshot-id": number,
        "parent-snapshot-id": parent,
        "timestamp-ms": number,
        "summary": summary,
        "schema-id": 0,
    }


def metadata(*snapshots: dict[str, Any], schemas: list[dict[str, Any]], **more: Any) -> Any:
    document = {
        "format-version": 2,
        "table-uuid": "u",
        "current-schema-id": schemas[-1]["schema-id"],
        "schemas": schemas,
        "current-snapshot-id": snapshots[-1]["snapshot-id"] if snapshots else -1,
        "snapshots": list(snapshots),
        **more,
    }
    return parse_metadata(json.dumps(document))


INNER = {"type": "struct", "fields": [field(4, "x"), field(5, "y")]}
OLD = schema(0, field(1, "id", "long"), field(2, "a"), field(3, "s", INNER), keys=(1,))


def test_a_chain_leads_from_a_snapshot_to_the_newest() -> None:
    log = [snapshot(n, n - 1 or None, "append") for n in (1, 2, 3)]
    side = snapshot(9, 1, "append")
    actual = metadata(side, *log, schemas=[OLD])
    assert [each.number for each in actual.chain(1) or []] == [2, 3]
    assert actual.chain(3) == []
    assert actual.chain(9) is None
    assert actual.chain(77) is None
    assert actual.identifiers == ("id",)
    assert metadata(schemas=[OLD]).current is None


def test_only_snapshots_without_delete_files_have_a_feed() -> None:
    clean = {"total_delete_files": "0"}
    log = {
        "append": snapshot(1, None, "append", **clean, added_records="5"),
        "rewritten": snapshot(2, 1, "overwrite", **clean, deleted_records="2", added_records="1"),
        "vectors": snapshot(3, 2, "delete", total_delete_files="1", added_delete_files="1"),
        "appended": snapshot(4, 3, "append", total_delete_files="1"),
        "compacted": snapshot(5, 4, "replace", removed_delete_files="1", **clean),
        "removed": snapshot(6, 5, "overwrite", removed_delete_files="1", **clean),
        "unknown": snapshot(7, 6, "overwrite"),
    }
    actual = metadata(*log.values(), schemas=[OLD])
    created = [actual.snapshots[number].commit() for number in range(1, 8)]
    feed, appended, compare = ChangeReadMode.FEED, ChangeReadMode.APPENDED, ChangeReadMode.COMPARE
    assert [each.how for each in created] == [feed, feed, compare, appended, feed, compare, compare]
    assert [each.rows for each in created[:2]] == [5, 3]
    assert [each.only_new for each in created] == [True, False, False, True, True, False, False]


def test_fields_are_known_by_their_ids_at_any_depth() -> None:
    renamed = {"type": "struct", "fields": [field(4, "z"), field(5, "y")]}
    new = schema(1, field(1, "id", "long"), field(2, "b"), field(3, "s", renamed), field(6, "n"))
    actual = metadata(schemas=[OLD, new])
    assert actual.names_at(0) == {("b",): "a", ("s", "z"): "x", ("n",): None}
    assert actual.names_at(1) == {}
    assert actual.stale_columns(0, ["id", "b", "s", "n"]) == ["b", "s"]
    assert actual.stale_columns(1, ["id", "b"]) == []
    assert actual.stale_columns(8, ["id", "b"]) == ["id", "b"]  # that schema is gone


def test_columns_added_again_or_with_a_value_for_old_rows_are_stale() -> None:
    new = schema(
        1, field(1, "id", "long"), field(7, "a"), field(8, "d", "int", **{"initial-default": 3})
    )
    actual = metadata(schemas=[OLD, new])
    assert actual.names_at(0) == {("a",): None, ("d",): None}
    assert actual.stale_columns(0, ["id", "a", "d"]) == ["a", "d"]


def test_elements_of_lists_and_maps_have_paths() -> None:
    item = {"type": "struct", "fields": [field(21, "p")]}
    new_item = {"type": "struct", "fields": [field(21, "q")]}
    tags = {"type": "list", "element-id": 20, "element": item, "element-required": False}
    new_tags = {**tags, "element": new_item}
    actual = metadata(schemas=[schema(0, field(2, "t", tags)), schema(1, field(2, "t", new_tags))])
    assert actual.names_at(0) == {("t", "element", "q"): "p"}


def test_identifiers_inside_structs_are_not_keys() -> None:
    assert metadata(schemas=[schema(0, field(3, "s", INNER), keys=(4,))]).identifiers == ()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"snapshots": [{}]}', '{"schemas": [3]}'])
def test_a_damaged_metadata_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="damaged"):
        parse_metadata(text)


def test_the_first_version_of_the_format_is_read() -> None:
    document = {"format-version": 1, "schema": {"type": "struct", "fields": [field(1, "id")]}}
    actual = parse_metadata(json.dumps(document))
    assert (actual.schema_id, actual.current, actual.table_id) == (0, None, None)


def test_the_newest_metadata_file_is_found_by_number() -> None:
    names = ["v9.metadata.json", "v10.metadata.json", "version-hint.text", "snap-1.avro"]
    assert newest_file(names) == "v10.metadata.json"
    assert newest_file(["00009-a.metadata.json", "00010-b.gz.metadata.json"]) == (
        "00010-b.gz.metadata.json"
    )
    assert newest_file(["version-hint.text"]) is None


@pytest.mark.parametrize(
    ("summary", "rows"),
    [
        ({"total-records": "5", "total-delete-files": "0"}, 5),
        ({"total-records": "5", "total-delete-files": "1"}, None),
        ({"total-records": "5"}, None),
        ({"total-delete-files": "0"}, None),
    ],
)
def test_rows_of_a_snapshot(summary: dict[str, str], rows: int | None) -> None:
    assert IcebergSnapshot(1, None, 0, "append", summary).rows == rows
