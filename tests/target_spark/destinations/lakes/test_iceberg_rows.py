"""Changes of rows of Iceberg tables without Spark: the rows are those that Spark makes."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from changing_rows import DELETED, NOON, VALUES, Rows, chosen
from lake_loads import IcebergLoad, struct

from shared.errors import DestinationError
from target_spark.core.load_plans import Layout
from target_spark.destinations.lakes.conflicts import LostCommit
from target_spark.destinations.lakes.iceberg import (
    iceberg_files,
    iceberg_metadata,
    iceberg_rows,
    iceberg_snapshots,
)
from target_spark.destinations.lakes.lake_format import NeedsSparkError

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., IcebergLoad]
KEYED: dict[str, Any] = {"keys": ("id",), "method": "upsert"}


def folder(load: IcebergLoad) -> Path:
    return Path(load.config.path) / load.table


def snapshots(load: IcebergLoad) -> list[dict[str, Any]]:
    """Return the snapshots, newest first."""
    found = iceberg_metadata.newest(str(folder(load)))
    assert found is not None
    return list(reversed(found.content["snapshots"]))


def by_spark(load: IcebergLoad) -> list[bool]:
    """Return whether Spark has made the snapshots, newest first."""
    return ["engine-name" in snapshot["summary"] for snapshot in snapshots(load)]


def files_in(load: IcebergLoad) -> set[str]:
    return {path.name for path in folder(load).rglob("*") if path.is_file()}


def merged(table: Rows, flush: Rows, load: IcebergLoad) -> Rows:
    """Return the rows of a table after a MERGE, as the documentation has it."""

    def rank(row: dict[str, Any]) -> list[Any]:
        return [(row[n] is not None, row[n]) if row[n] is not None else (False,) for n in order]

    order, new = load.order_by, {}
    for row in flush:
        key = tuple(row[name] for name in load.keys)
        if key not in new or rank(row) >= rank(new[key]):
            new[key] = row
    kept, known = [], set()
    for row in table:
        key = tuple(row[name] for name in load.keys)
        known.add(key)
        wins = key in new and rank(new[key]) >= rank(row)
        if not wins:
            kept.append(row)
        elif not (load.hard_delete and new[key][DELETED]):
            kept.append(new[key])
    added = (new[key] for key in new.keys() - known)
    return kept + [row for row in added if not (load.hard_delete and row[DELETED])]


@pytest.mark.parametrize("case", range(6))
def test_rows_are_those_of_a_dictionary(
    iceberg_load: Make, case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_files, "CHUNK", 200)
    chance = Random(f"dictionary {case}")
    names = ("k", "l", "o", "p", "v")
    kinds = dict(zip(names, chance.sample(list(VALUES), len(names)), strict=True))
    load = iceberg_load(
        ", ".join(f"{name} {kind}" for name, kind in {**kinds, DELETED: "timestamp"}.items()),
        keys=names[: chance.randrange(1, 3)],
        method="upsert",
        hard_delete=chance.random() < 0.7,
        order_by=names[2 : 2 + chance.randrange(3)],
    )
    table: Rows = []
    for _ in range(6):
        flush = [
            {**chosen(chance, kinds), DELETED: chance.choice([None, None, NOON])}
            for _ in range(chance.randrange(1, 12))
        ]
        load.load(flush)
        table = merged(table, flush, load)
        found = load.other_reader().rows
        assert sorted(map(repr, found)) == sorted(map(repr, table)), kinds
    assert not any(by_spark(load))


def test_a_merge_reads_and_writes_only_files_of_its_keys(iceberg_load: Make) -> None:
    load = iceberg_load("id long, v long", **KEYED)
    for first in (0, 100, 200):
        load.load([{"id": first + n, "v": 0} for n in range(10)])
    before = load.sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at DESC")[0][0]
    load.load([{"id": 105, "v": 1}, {"id": 105, "v": 2}, {"id": 106, "v": 3}], state="s")
    told = snapshots(load)[0]["summary"]
    assert (told["operation"], told["deleted-data-files"], told["deleted-records"]) == (
        "overwrite", "1", "10",
    )  # fmt: skip
    assert [row for row in load.rows() if row[1]] == [(105, 2), (106, 3)]
    assert load.marks()[0].state == "s"
    assert load.sql(f"SELECT sum(v), count(*) FROM {{t}} VERSION AS OF {before}") == [(0, 30)]
    assert {row["id"]: row["v"] for row in load.other_reader().rows} == dict(load.rows())
    load.load([{"id": 300, "v": 1}])
    assert snapshots(load)[0]["summary"]["operation"] == "append"
    assert not any(by_spark(load))


def test_an_overwrite_exchanges_the_rows(iceberg_load: Make) -> None:
    """In one commit, for a new table and for one that has the columns; readers see either."""
    load = iceberg_load("id long not null, v string", keys=("id",), method="overwrite")
    for batches in (([1, 2], [3]), ([2], [4, 5], [6])):
        load.begin()
        *_, last = [load.load([{"id": n, "v": "x"} for n in numbers]) for numbers in batches]
        before = [] if batches[0] == [1, 2] else snapshots(load)
        assert len(before) == (batches[0] == [2]), "nothing is visible before the end"
        load.end()
    assert by_spark(load) == [False, False]
    told = snapshots(load)[0]["summary"]
    assert (told["operation"], told["deleted-records"], told["total-records"]) == (
        "overwrite", "3", "4",
    )  # fmt: skip
    assert load.rows("id") == [(2,), (4,), (5,), (6,)]
    assert sorted(row["id"] for row in load.other_reader().rows) == [2, 4, 5, 6]
    old = before[0]["snapshot-id"]
    assert load.sql(f"SELECT count(*) FROM {{t}} VERSION AS OF {old}") == [(3,)]
    assert load.marks()[0].token == last.token


@pytest.mark.parametrize("why", ["a key twice", "other columns", "partitions"])
def test_other_overwrites_are_spark_s(iceberg_load: Make, why: str) -> None:
    load = iceberg_load("id long, v string", keys=("id",), method="overwrite")
    load.load([{"id": 1, "v": "a"}])
    load.end()
    load.begin()
    if why == "other columns":
        load.struct = struct("id long, v double")
    if why == "partitions":
        load.layout = Layout(partition_by=("v",))
    load.load([{"id": 2, "v": None}])
    load.load([{"id": 2 if why == "a key twice" else 3, "v": None}])
    load.end()
    if why == "partitions":
        with pytest.raises(NeedsSparkError):
            snapshots(load)
    else:
        assert by_spark(load) == [True, False]
    assert load.rows("id") == ([(2,)] if why == "a key twice" else [(2,), (3,)])


def test_rows_of_long_texts_are_found_again(iceberg_load: Make) -> None:
    """A row group does not tell bounds of them, but the next one of the file does."""
    load = iceberg_load("id string, v long", **KEYED)
    long = "z" * 5000
    load.load([{"id": long, "v": 0}, {"id": "b", "v": 0}])
    load.load([{"id": "b", "v": 1}, {"id": "c", "v": 1}])
    load.load([{"id": long, "v": 2}])
    assert load.rows() == [("b", 1), ("c", 1), (long, 2)]
    assert load.sql(f"SELECT v FROM {{t}} WHERE id = '{long}'") == [(2,)]
    assert not any(by_spark(load))


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_a_table_has_the_version_of_its_properties(iceberg_load: Make, version: str) -> None:
    load = iceberg_load("id long", layout=Layout(properties={"format-version": version}))
    load.load([{"id": 1}])
    assert load.properties()["format-version"] == version
    assert load.other_reader().rows == [{"id": 1}]


def test_spark_goes_on_where_we_stop_and_the_other_way_round(iceberg_load: Make) -> None:
    """Created, altered and changed by turns; files of Spark are read, ours are merged by it."""
    about = {"properties": {"more": {"description": "It's more"}}}
    ddl = 'id long not null, v string, `k"ey` int, n struct<a: long, l: array<string>>'
    ours = iceberg_load(ddl, schema=about, **KEYED)
    sparks = ours.other(config=replace(ours.config, engine="spark"))
    row = {'k"ey': 1, "n": {"a": 1, "l": ["x"]}}
    for number, load in enumerate((ours, sparks, ours, sparks, ours)):
        if number == 2:
            more = ddl + ", more struct<a: int, d: date>, at timestamp"
            ours.struct = sparks.struct = struct(more)
            row |= {"more": {"a": 1, "d": dt.date(2024, 2, 29)}, "at": NOON}
        load.load([{**row, "id": key, "v": str(number)} for key in (number, number + 1)])
    assert by_spark(ours) == [False, True, False, True, False]
    found = ours.other_reader()
    assert sorted((row["id"], row["v"]) for row in found.rows) == [
        (0, "0"), (1, "1"), (2, "2"), (3, "3"), (4, "4"), (5, "4"),
    ]  # fmt: skip
    assert found.required == ["id"]
    assert found.comments["more"] == "It's more"
    assert len(ours.rows()) == len(found.rows)
    assert ours.properties()["identifier-fields"] == "[id]"
    place = ours.destination._form.place(ours.request.name)
    told = ours.destination._form.describe(ours.reader(), place)
    mine = ours.destination._form.looked_up(place)
    assert (mine.struct, mine.names, mine.partitions, mine.spec) == (
        told.struct, told.names, told.partitions, told.spec,
    )  # fmt: skip


def test_tags_branches_and_old_snapshots_stay(iceberg_load: Make) -> None:
    load = iceberg_load("id long, v string", **KEYED)
    load.load([{"id": 1, "v": "a"}])
    load.sql("ALTER TABLE {t} CREATE TAG first RETAIN 7 DAYS")
    load.sql("ALTER TABLE {t} CREATE BRANCH other")
    load.load([{"id": 1, "v": "b"}])
    refs = load.sql("SELECT name, type, max_reference_age_in_ms FROM {t}.refs ORDER BY name")
    assert [tuple(row) for row in refs] == [
        ("first", "TAG", 604800000), ("main", "BRANCH", None), ("other", "BRANCH", None),
    ]  # fmt: skip
    for name in ("first", "other"):
        assert load.sql(f"SELECT v FROM {{t}} VERSION AS OF '{name}'") == [("a",)]
    assert load.rows() == [(1, "b")]
    assert not any(by_spark(load))


def test_a_commit_of_others_in_between_is_kept(
    iceberg_load: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = iceberg_load("id long, v string", **KEYED)
    load.load([{"id": 1, "v": "a"}, {"id": 2, "v": "a"}])
    before = files_in(load)
    commit_files, more = iceberg_rows.commit_files, [True]

    def later(*given: Any) -> None:
        if more.pop() if more else False:
            load.sql("UPDATE {t} SET v = 'theirs' WHERE id = 2")
            with pytest.raises(LostCommit):
                commit_files(*given)
            raise LostCommit
        commit_files(*given)

    monkeypatch.setattr(iceberg_rows, "commit_files", later)
    load.load([{"id": 1, "v": "b"}, {"id": 3, "v": "b"}])
    assert load.rows() == [(1, "b"), (2, "theirs"), (3, "b")]
    assert by_spark(load) == [False, True, False]
    data = {name for name in files_in(load) - before if name.endswith("parquet") and name[0] != "."}
    known = load.sql("SELECT file_path FROM {t}.all_data_files")
    assert data <= {Path(row[0]).name for row in known}, "the lost attempt has left files"


def test_a_change_that_loses_rows_is_not_committed(
    iceberg_load: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = iceberg_load("id long, v string", **KEYED)
    load.load([{"id": 1, "v": "a"}, {"id": 2, "v": "a"}])
    before = files_in(load)
    close = iceberg_rows.DataFileWriter.close

    def lossy(writer: Any) -> Any:
        for file in (found := close(writer)):
            file._data[4] -= 1
        return found

    monkeypatch.setattr(iceberg_rows.DataFileWriter, "close", lossy)
    with pytest.raises(DestinationError, match="would leave 1 rows instead of 2"):
        load.load([{"id": 1, "v": "b"}])
    assert load.rows() == [(1, "a"), (2, "a")]
    assert files_in(load) == before


def test_what_fails_after_the_commit_leaves_its_files(
    iceberg_load: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = iceberg_load("id long, v string", **KEYED)
    load.load([{"id": 1, "v": "a"}])

    def fails(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(iceberg_metadata, "_hint", fails)
    with pytest.raises(KeyboardInterrupt):
        load.load([{"id": 1, "v": "b"}])
    assert load.rows() == [(1, "b")]


def test_spark_changes_what_is_too_large(
    iceberg_load: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = iceberg_load("id long, v string", **KEYED)
    load.load([{"id": n, "v": "x" * n} for n in range(100)])
    monkeypatch.setattr(iceberg_rows, "MOST_BYTES", 1000)
    load.load([{"id": 0, "v": "big"}, {"id": 100, "v": "big"}])
    assert by_spark(load) == [True, False]
    assert [row for row in load.rows() if row[1] == "big"] == [(0, "big"), (100, "big")]
    assert len(load.rows()) == 101


def test_files_that_delete_rows_of_others_are_left_to_spark(iceberg_load: Make) -> None:
    load = iceberg_load("id long, v string", **KEYED)
    load.sql(
        "CREATE TABLE {t} (id BIGINT, v STRING) USING iceberg "
        "TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')"
    )
    load.sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'a')")
    load.load([{"id": 1, "v": "b"}])
    load.sql("ALTER TABLE {t} UNSET TBLPROPERTIES ('write.merge.mode')")
    found = iceberg_metadata.newest(str(folder(load)))
    assert found is not None
    with pytest.raises(NeedsSparkError):
        iceberg_snapshots.files_of(found)
    load.load([{"id": 1, "v": "c"}, {"id": 3, "v": "c"}])
    assert load.rows() == [(1, "c"), (2, "a"), (3, "c")]
    assert by_spark(load) == [True] * 3


@pytest.mark.parametrize(
    "other",
    [
        {"format-version": 3},
        {"location": "/elsewhere"},
        {"current-snapshot-id": 1},
        {"partition-specs": [{"spec-id": 0, "fields": [{"name": "v", "transform": "identity"}]}]},
        {"sort-orders": [{"order-id": 1, "fields": [{"transform": "identity"}]}]},
        {"properties": {"write.merge.mode": "merge-on-read"}},
        {"properties": {"write.parquet.page-size-bytes": "1000"}},
        {"properties": {"write.wap.enabled": "true"}},
        {"properties": {"encryption.key-id": "a"}},
    ],
)
def test_tables_that_only_spark_can_change(iceberg_load: Make, other: dict[str, Any]) -> None:
    load = iceberg_load("id long, v string")
    load.load([{"id": 1, "v": "a"}])
    found = iceberg_metadata.newest(str(folder(load)))
    assert found is not None
    found.path.write_text(json.dumps({**found.content, **other}))
    with pytest.raises(NeedsSparkError):
        iceberg_metadata.look_up(str(folder(load)))


def test_files_have_the_size_of_the_settings(iceberg_load: Make) -> None:
    layout = Layout(target_file_bytes=4000)
    load = iceberg_load("id long, v string", layout=layout, **KEYED)
    rows = [{"id": number, "v": str(number) * 50} for number in range(500)]
    load.load(rows)
    load.load([{**row, "v": "b"} for row in rows[::2]])
    found = iceberg_metadata.newest(str(folder(load)))
    assert found is not None
    sizes = [file.file_size_in_bytes for file in iceberg_snapshots.files_of(found).data]
    assert len(sizes) > 1
    assert max(sizes) < 8000
    assert len(load.rows()) == 500
    assert sum(value == "b" for _, value in load.rows()) == 250


def test_counts_that_differ_are_left_to_spark(iceberg_load: Make) -> None:
    load = iceberg_load("id long, v string", **KEYED)
    load.load([{"id": 1, "v": "a"}, {"id": 2, "v": "a"}])
    found = iceberg_metadata.newest(str(folder(load)))
    assert found is not None
    found.path.write_text(json.dumps(found.content).replace('records": "2"', 'records": "3"'))
    load.load([{"id": 1, "v": "b"}])
    assert by_spark(load) == [True, False]
    assert load.rows() == [(1, "b"), (2, "a")]


def test_many_manifests_become_one(iceberg_load: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_snapshots, "MOST_MANIFESTS", 3)
    load = iceberg_load("id long, v long")
    for number in range(5):
        load.load([{"id": number, "v": number}])
    found = iceberg_metadata.newest(str(folder(load)))
    assert found is not None
    assert len(iceberg_snapshots.files_of(found).manifests) == 3
    assert load.rows() == [(number, number) for number in range(5)]
    assert load.sql("SELECT count(*) FROM {t}.files") == [(5,)]


def test_columns_that_were_widened_and_bounds_of_all_types(iceberg_load: Make) -> None:
    load = iceberg_load("id int, f float, d decimal(5,2), v string", **KEYED)
    load.load([{"id": n, "f": 0.5, "d": Decimal("1.25"), "v": "z" * n} for n in (1, 2)])
    for change in ("id TYPE BIGINT", "f TYPE DOUBLE", "d TYPE DECIMAL(20, 2)"):
        load.sql(f"ALTER TABLE {{t}} ALTER COLUMN {change}")
    load.struct = struct("id long, f double, d decimal(20,2), v string")
    load.load([{"id": 2, "f": 1e300, "d": Decimal("1" * 18 + ".25"), "v": "b"}])
    assert load.rows() == [
        (1, 0.5, Decimal("1.25"), "z"), (2, 1e300, Decimal("1" * 18 + ".25"), "b"),
    ]  # fmt: skip
    assert not any(by_spark(load))
    for text in ("id = 2", "f > 1e299", "d > 100000", "v < 'c'"):
        assert load.sql(f"SELECT v FROM {{t}} WHERE {text}") == [("b",)]


def test_times_that_python_lacks_are_left_to_spark(iceberg_load: Make) -> None:
    load = iceberg_load("id long, at timestamp", **KEYED)
    load.load([{"id": 1, "at": NOON}])
    load.load([{"id": 2, "at": 253402304399000000}])
    assert by_spark(load) == [True, False]
    assert load.sql("SELECT year(at) > 9999 FROM {t} WHERE id = 2") == [(True,)]
