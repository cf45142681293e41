"""Rows into Iceberg tables: appended, merged by key, overwritten, deleted, and never twice."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from iceberg_loads import IcebergLoad, sqlite_catalog
from lake_loads import struct

from shared.errors import DestinationError, SettingsError
from shared.spark_settings import SparkSettings
from target_spark.config import TargetConfig
from target_spark.destinations.iceberg import MARK_PROPERTY, iceberg_destination
from target_spark.plans import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server]
Make = Callable[..., IcebergLoad]
METADATA = "_sdc_deleted_at timestamp, _sdc_table_version long"
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone.utc)
CATALOG = "warehouse"


@pytest.fixture
def load_of(lake_spark: SparkSession, tmp_path: Path) -> Iterator[Make]:
    """Makes loads into tables below a path or, by `catalog`, in a JDBC catalog."""
    made: list[IcebergLoad] = []

    def make(ddl: str, **changes: Any) -> IcebergLoad:
        names = ("type_conflicts", "column_names", "catalog", "default_target_schema")
        settings = {name: changes.pop(name) for name in names if name in changes}
        if "catalog" in settings:
            (tmp_path / "jdbc").mkdir(exist_ok=True)
            conf = {
                f"spark.sql.catalog.{CATALOG}{key}": text
                for key, text in sqlite_catalog(tmp_path / "jdbc").items()
            }
            settings["spark"] = SparkSettings(app_name="tests", conf=conf)
        else:
            settings["path"] = str(tmp_path / "lake")
        config = TargetConfig(format="iceberg", **settings)
        made.append(IcebergLoad(lake_spark, config, struct(ddl), iceberg_destination, **changes))
        return made[-1]

    yield make
    for load in made:
        load.destination._close()


def row(number: int | None, text: str | None, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": text, **more}


def marks(load: IcebergLoad) -> list[str | None]:
    return [snapshot["summary"].get(MARK_PROPERTY) for snapshot in load.history()]


def test_append_only_adds_every_part_in_one_commit(load_of: Make, tmp_path: Path) -> None:
    load = load_of("id long, name string")
    load.load([row(1, "a")], [row(1, "a"), row(2, None)])
    load.load([row(3, "c")])
    assert load.rows() == [(1, "a"), (1, "a"), (2, None), (3, "c")]
    assert len(load.history()) == 2
    load.end()
    assert "orders" in [p.name for p in (tmp_path / "lake").iterdir()]
    shown = {p.name for p in (tmp_path / "lake" / "orders").iterdir() if p.name[0] != "."}
    assert shown == {"data", "metadata"}


DDL = (
    "id long not null, name string, at timestamp, local timestamp_ntz, day date, amount "
    "decimal(12,2), tags array<string>, raw binary, place struct<lat: double, `on map`: boolean>, "
    "counts map<string, int>, small tinyint"
)


def full_row(number: int) -> dict[str, Any]:
    return {
        "id": number, "name": f"n'{number}", "at": NOON, "local": dt.datetime(2024, 1, 1, 1),
        "day": dt.date(2024, 2, 29), "amount": Decimal("1.50"), "tags": ["x", None],
        "raw": b"\xff", "place": {"lat": 1.5, "on map": None}, "counts": [("a", 1)], "small": 7,
    }  # fmt: skip


@pytest.mark.parametrize("catalog", [None, CATALOG])
def test_another_reader_sees_the_same_rows(
    load_of: Make, tmp_path: Path, catalog: str | None
) -> None:
    pyiceberg = pytest.importorskip("pyiceberg.table")
    settings = {} if catalog is None else {"catalog": catalog, "default_target_schema": "sales"}
    schema = {"description": "All orders", "properties": {"id": {"description": "it's the key"}}}
    load = load_of(DDL, keys=("id",), method="upsert", schema=schema, **settings)
    load.load([full_row(n) for n in range(5)])
    load.load([{"id": 2, "name": "two"}])
    load.end()
    if catalog is None:
        metadata = tmp_path / "lake" / "orders" / "metadata"
        newest = max(metadata.glob("v*.metadata.json"), key=lambda p: int(p.name[1:].split(".")[0]))
        table = pyiceberg.StaticTable.from_metadata(str(newest))
    else:
        sql = pytest.importorskip("pyiceberg.catalog.sql")
        found = sql.SqlCatalog(CATALOG, uri=f"sqlite:///{tmp_path}/jdbc/catalog.db")
        table = found.load_table("sales.orders")
    rows = {r["id"]: r for r in table.scan().to_arrow().to_pylist()}
    empty = dict.fromkeys(full_row(2))
    assert rows == {**{n: full_row(n) for n in range(5)}, 2: {**empty, "id": 2, "name": "two"}}
    assert table.schema().identifier_field_names() == {"id"}
    assert table.schema().find_field("id").doc == "it's the key"
    assert table.properties["comment"] == "All orders"


def test_upsert_keeps_the_newest_row_of_each_key_by_arrival(load_of: Make) -> None:
    load = load_of("id long, name string", keys=("id",), method="upsert")
    load.load([row(1, "z"), row(2, "b"), row(1, "a")], [row(2, "bb"), row(3, "c"), row(3, "a")])
    assert load.rows() == [(1, "a"), (2, "bb"), (3, "a")]
    load.load([row(3, "x"), row(4, "d")])
    assert load.rows() == [(1, "a"), (2, "bb"), (3, "x"), (4, "d")]


def test_null_is_a_key_like_any_other(load_of: Make) -> None:
    load = load_of("a long, b string, v long", keys=("a", "b"), method="upsert")

    def item(a: int | None, b: str | None, v: int) -> dict[str, Any]:
        return {"a": a, "b": b, "v": v}

    load.load([item(1, None, 1), item(None, None, 2), item(None, None, 3), item(1, "x", 4)])
    load.load([item(1, None, 5), item(None, "x", 6), item(None, None, 7)])
    wanted = [(1, None, 5), (None, None, 7), (1, "x", 4), (None, "x", 6)]
    assert load.rows() == sorted(wanted, key=repr)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("string", ["it's", "${spark.master}", "a\\b", "\U0001f600", "", "x" * 3000]),
        ("date", [dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]),
        ("timestamp", [NOON, NOON - dt.timedelta(days=40000, microseconds=1)]),
        ("timestamp_ntz", [dt.datetime(2024, 1, 1), dt.datetime(1900, 1, 1, 0, 0, 0, 1)]),
        ("decimal(20,3)", [Decimal("-1.125"), Decimal("0.000"), Decimal("12345678901234567.890")]),
        ("double", [1.5, float("inf"), float("nan"), -0.0]),
        ("long", [-(1 << 63), 0, (1 << 63) - 1]),
        ("boolean", [True, False]),
        ("binary", [b"", b"\xff"]),
    ],
)
def test_keys_of_every_type_find_their_rows(load_of: Make, dtype: str, values: list[Any]) -> None:
    load = load_of(f"k {dtype}, v long", keys=("k",), method="upsert")
    load.load([{"k": value, "v": 1} for value in values])
    load.load([{"k": value, "v": 2} for value in values])
    assert [found for (found,) in load.rows("v")] == [2] * len(values)


@pytest.mark.parametrize("hard", [True, False])
def test_a_marked_record_is_kept_or_removes_its_row(load_of: Make, hard: bool) -> None:
    ddl = f"id long, name string, {METADATA}"
    load = load_of(ddl, keys=("id",), method="upsert", hard_delete=hard)
    load.load([row(1, "a"), row(2, "b")])
    load.load([row(1, "a"), row(1, "a", _sdc_deleted_at=NOON), row(3, "c", _sdc_deleted_at=NOON)])
    found = [(number, at is not None) for number, at in load.rows("id", "_sdc_deleted_at")]
    assert found == ([(2, False)] if hard else [(1, True), (2, False), (3, True)])


@pytest.mark.parametrize("hard", [True, False])
def test_an_activated_version_removes_or_marks_older_rows(load_of: Make, hard: bool) -> None:
    load = load_of(f"id long, {METADATA}", hard_delete=hard)
    load.activate(5)
    old = [{"id": 1, "_sdc_table_version": 1}, {"id": 2, "_sdc_table_version": None}]
    load.load([*old, {"id": 3, "_sdc_table_version": 2, "_sdc_deleted_at": NOON}])
    load.load([{"id": 4, "_sdc_table_version": 5}])
    load.activate(5)
    load.activate(5)
    found = {number: at and at.replace(tzinfo=None) for number, at in load.rows("id", DELETED)}
    day, noon = dt.datetime(1970, 1, 2), NOON.replace(tzinfo=None)
    assert found == ({2: None, 4: None} if hard else {1: day, 2: None, 3: noon, 4: None})


DELETED = "_sdc_deleted_at"


def test_overwrite_replaces_everything_at_the_end_in_one_commit(load_of: Make) -> None:
    load = load_of("id long, name string", method="overwrite", layout=Layout(cluster_by=("id",)))
    load.load([row(1, "a")], [row(2, "b")])
    load.end()
    assert load.rows() == [(1, "a"), (2, "b")]
    before = len(load.history())
    load.begin()
    load.load([row(3, "c")])
    load.load([row(3, "c")])
    assert load.rows() == [(1, "a"), (2, "b")]
    load.end()
    assert load.rows() == [(3, "c"), (3, "c")]
    assert len(load.history()) == before + 1
    load.begin()
    load.load()
    load.end()
    assert load.rows() == []


@pytest.mark.parametrize("catalog", [None, CATALOG])
def test_overwrite_with_other_columns_is_one_commit_too(load_of: Make, catalog: str | None) -> None:
    settings = {} if catalog is None else {"catalog": catalog}
    layout = Layout(partition_by=("bucket(2, name)",), properties={"a'b": "c"})
    load = load_of("id long, name string, gone date", method="overwrite", layout=layout, **settings)
    load.load([row(1, "a")])
    load.end()
    before = len(load.history())
    load.begin()
    load.struct = struct("id string, name string")
    load.load([{"id": "x", "name": "y"}])
    load.struct = struct("id string, name string, more long")
    load.schema = {"properties": {"more": {"description": "new"}}}
    load.load([{"id": "z", "name": None, "more": 1}])
    load.end()
    assert load.columns() == [("id", "string"), ("name", "string"), ("more", "bigint")]
    assert load.rows() == [("x", "y", None), ("z", None, 1)]
    assert len(load.history()) == before + 1
    assert load.sql("DESCRIBE {t} more")[2][1] == "new"
    assert load.properties()["a'b"] == "c"
    assert load.sql("SELECT count(*) FROM {t}.partitions")[0][0] == 2
    assert marks(load)[-1] is not None


def test_a_run_that_does_not_end_overwrites_nothing(load_of: Make) -> None:
    load = load_of("id long, name string", method="overwrite")
    load.load([row(1, "a")])
    load.end()
    load.begin()
    load.load([row(2, "b")])
    load.begin()
    assert load.rows() == [(1, "a")]


def test_a_flush_without_rows_makes_the_table(load_of: Make) -> None:
    load = load_of("id long, name string")
    load.load()
    assert load.rows() == []


@pytest.mark.parametrize("method", ["append-only", "upsert"])
def test_a_commit_repeated_changes_nothing(load_of: Make, method: str) -> None:
    load = load_of("id long, name string", keys=("id",), method=method)
    flush = load.load([row(1, "a")])
    later = load.load([row(1, "b")])
    before = len(load.history())
    load.destination.commit(flush)
    load.destination.commit(later)
    assert len(load.history()) == before
    assert (1, "b") in load.rows()


def test_a_flush_that_was_rolled_back_is_committed_again(load_of: Make) -> None:
    load = load_of("id long, name string")
    load.load([row(1, "a")])
    first = load.history()[-1]["snapshot_id"]
    flush = load.flush([row(2, "b")])
    load.destination.commit(replace(flush, parts=()))
    kept = load.flush([row(3, "c")], note="n")
    load.destination.commit(kept)
    catalog = load.name.partition(".")[0]
    load.sql(f"CALL {catalog}.system.rollback_to_snapshot('{{t}}', {first})")
    again = load.flush([row(3, "c")], token=kept.token, note="n")
    load.destination.commit(again)
    assert load.rows() == [(1, "a"), (3, "c")]


def test_the_note_of_a_crashed_run_is_given_back_until_a_run_ends(load_of: Make) -> None:
    load = load_of("id long, name string")
    assert load.note() is None
    load.load([row(1, "a")], note="first")
    load.load([row(2, "b")], note='{"second": "☃ ${spark.master} \'"}')
    load.begin()
    assert load.note() == '{"second": "☃ ${spark.master} \'"}'
    load.sql("INSERT INTO {t} VALUES (9, 'of another')")
    load.begin()
    assert load.note() == '{"second": "☃ ${spark.master} \'"}'
    assert load.other(stream="others").note() is None
    load.load([row(3, "c")], note="x" * 65536)
    load.begin()
    assert load.note() == "x" * 65536
    load.end()
    load.begin()
    assert load.note() is None
    assert len(load.rows()) == 4


@pytest.mark.parametrize("catalog", [None, CATALOG])
def test_two_runs_that_upsert_the_same_rows_lose_nothing(
    load_of: Make, catalog: str | None
) -> None:
    settings = {} if catalog is None else {"catalog": catalog}
    loads = [load_of("id long, name string", keys=("id",), method="upsert", **settings)
             for _ in range(2)]  # fmt: skip

    def work(load: IcebergLoad, name: str) -> None:
        for turn in (0, 1):
            load.load([row(n, f"{name}{turn}") for n in range(turn, 20, 2)])

    run_together(lambda: work(loads[0], "f"), lambda: work(loads[1], "s"))
    found = dict(loads[0].rows())
    assert len(loads[0].rows()) == 20
    assert {found[n][1:] for n in range(0, 20, 2)} == {"0"}
    assert {found[n][1:] for n in range(1, 20, 2)} == {"1"}


def test_runs_that_make_and_widen_a_table_at_once_agree(load_of: Make) -> None:
    loads = [load_of(f"id long, c{n} string") for n in range(3)]
    works = [lambda load=load, n=n: load.load([{"id": n, f"c{n}": "x"}])
             for n, load in enumerate(loads)]  # fmt: skip
    run_together(*works)
    assert loads[0].rows("id", "c0", "c1", "c2") == [
        (0, "x", None, None),
        (1, None, "x", None),
        (2, None, None, "x"),
    ]


def run_together(*works: Callable[[], object]) -> None:
    failures: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_odd_names_are_kept_or_made_legal(load_of: Make) -> None:
    load = load_of(
        "`a b` long, `a.b` long, `a``c` long, `$x` long",
        keys=("a b", "a.b"),
        method="upsert",
        table="we[i]rd {n}% #a'm`.`e ${x}",
        default_target_schema="d b.o",
        layout=Layout(partition_by=("bucket(2, a.b)",), cluster_by=("a`c",)),
    )
    values = {"a b": 1, "a.b": 2, "a`c": 3, "$x": 4}
    load.load([values])
    load.load([values, {**values, "a b": 5}])
    names = [name for name, _ in load.columns()]
    assert "." not in "".join(names)
    assert [names[0], *names[2:]] == ["a b", "a`c", "$x"]
    assert load.rows() == [(1, 2, 3, 4), (5, 2, 3, 4)]
    load.begin()
    load.struct = struct("a_b string, `a b` long, `a.b` long")
    load.load([{"a_b": "other", "a b": 1, "a.b": 3}])
    assert len({name for name, _ in load.columns()}) == 5
    load.layout = replace(load.layout, compact=True)
    load.end()
    assert len(load.rows()) == 3


def test_a_catalog_nobody_described_is_an_error(lake_spark: SparkSession) -> None:
    config = TargetConfig(format="iceberg", catalog="nowhere")
    load = IcebergLoad(lake_spark, config, struct("id long"), iceberg_destination)
    with pytest.raises(SettingsError, match=r"spark\.sql\.catalog\.nowhere"):
        load.load([{"id": 1}])


def test_null_in_a_required_column_is_an_error_that_leaves_nothing(load_of: Make) -> None:
    load = load_of("id long not null, name string")
    load.load([row(1, "a")])
    with pytest.raises(DestinationError, match="non-nullable"):
        load.load([row(None, "b")])
    assert load.rows() == [(1, "a")]
