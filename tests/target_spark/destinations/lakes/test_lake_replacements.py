"""Tables replaced whole, with other columns, while others read and write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from case_matrix import matrix
from lake_loads import Load, struct

from shared.errors import DestinationError
from target_spark.core.load_plans import Backfill, Layout
from target_spark.destinations.destination import RefusedByStoreError
from target_spark.destinations.lakes.iceberg import iceberg_format
from target_spark.destinations.lakes.iceberg.iceberg_transaction import IcebergTransaction

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., Any]


def before(target: Any, name: str, work: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    """Do work once, before something is called for the first time."""
    called = getattr(target, name)
    done: list[bool] = []

    def first(*args: Any, **named: Any) -> Any:
        if not done:
            done.append(True)
            work()
        return called(*args, **named)

    patch.setattr(target, name, first)


def other_of(load: Load) -> Load:
    """Return a run of another process on the same table."""
    return load.other(destination=None, keys=(), method="append-only")


@pytest.mark.parametrize(
    ("lake", "in_catalog", "more"),
    matrix(["iceberg", "delta"], [False, True], ["", ", w long"]),
    indirect=["lake"],
)
def test_a_commit_just_before_a_table_is_cast_is_kept(
    lake_load: Make, in_catalog: bool, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = lake_load("id long, v long", type_conflicts="cast", in_catalog=in_catalog)
    load.load([{"id": 1, "v": 5}])
    other = other_of(load)
    other.struct = struct(f"id long, v long{more}")
    extra = {"w": 7} if more else {}
    form = load.destination._form
    before(form, "replace", lambda: other.load([{"id": 2, "v": 6, **extra}]), monkeypatch)
    load.struct = struct("id long, v boolean")
    load.load([{"id": 3, "v": True}])
    assert load.rows("id", "v") == [(1, "5"), (2, "6"), (3, "true")]
    if more:
        assert load.rows("w") == [(7,), (None,), (None,)]


INSERT = "INSERT INTO {t} VALUES (2, 6)"
WORKS = {
    "append": ([INSERT], [(1, "5"), (2, "6"), (3, "true")]),
    "delete": (["DELETE FROM {t} WHERE id = 1"], [(3, "true")]),
    "column": (["ALTER TABLE {t} ADD COLUMN w long", "UPDATE {t} SET w = 1"],
               [(1, "5", 1), (3, "true", None)]),
    "properties": (["ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')"], [(1, "5"), (3, "true")]),
}  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    # Appended and deleted rows are a snapshot each, and tried again alike.
    [pytest.param(kind, marks=pytest.mark.slow if kind == "append" else ()) for kind in WORKS],
)
def test_a_commit_while_a_table_is_cast_is_kept(
    iceberg_load: Make, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    statements, wanted = WORKS[kind]
    load = iceberg_load("id long, v long", type_conflicts="cast", in_catalog=True)
    load.load([{"id": 1, "v": 5}])
    seen: list[Any] = []

    def work() -> None:
        seen.append((load.columns(), load.rows()))
        for statement in statements:
            load.sql(statement)

    before(IcebergTransaction, "commit", work, monkeypatch)
    load.struct = struct("id long, v boolean")
    load.load([{"id": 3, "v": True}])
    assert seen == [([("id", "bigint"), ("v", "bigint")], [(1, 5)])]
    assert load.rows() == wanted
    assert kind != "properties" or load.properties()["a"] == "b"
    existing = {Path(row[0]).name for row in load.sql("SELECT file_path FROM {t}.all_data_files")}
    assert {
        path.name for path in tmp_path.glob("jdbc/default/orders/data/**/*.parquet")
    } == existing


def test_a_commit_while_a_table_is_overwritten_comes_before(
    iceberg_load: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = iceberg_load("id long, v long", method="overwrite", in_catalog=True)
    load.load([{"id": 1, "v": 5}])
    load.end()
    load.begin()
    load.struct = struct("id long, v boolean, w string")
    load.load([{"id": 3, "v": True, "w": "x"}])
    before(IcebergTransaction, "commit", lambda: load.sql(INSERT), monkeypatch)
    load.end()
    assert load.rows() == [(3, True, "x")]
    snapshots = load.history()
    assert len(snapshots) == 3
    parents = [row["parent_id"] for row in snapshots]
    assert parents == [None, *(row["snapshot_id"] for row in snapshots[:-1])]


def test_a_commit_while_a_range_is_replaced_comes_before(
    iceberg_load: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = iceberg_load("id long, v long", method="append-only", in_catalog=True)
    load.load([{"id": 1, "v": 5}, {"id": 2, "v": 9}])
    run = load.other(method="overwrite", backfill=Backfill("orders", "v", "5", "6"))
    run.load([{"id": 3, "v": 5}])
    before(iceberg_format, "_fast_forward", lambda: load.sql(INSERT), monkeypatch)
    run.end()
    expected = [row for row in load.rows() if row[1] != 5]
    assert load.rows() == sorted([*expected, (3, 5)], key=repr)
    assert len(expected) == 2
    assert [row["name"] for row in load.sql("SELECT name FROM {t}.refs")] == ["main"]


def test_a_table_that_is_changed_all_the_time_is_given_up(
    iceberg_load: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from target_spark.destinations.lakes import lake_table

    monkeypatch.setattr(lake_table, "ATTEMPTS", 2)
    load = iceberg_load("id long, v long", type_conflicts="cast", in_catalog=True)
    load.load([{"id": 1, "v": 5}])
    commit = IcebergTransaction.commit

    def never(self: IcebergTransaction) -> None:
        load.sql(INSERT)
        commit(self)

    monkeypatch.setattr(IcebergTransaction, "commit", never)
    load.struct = struct("id long, v boolean")
    with pytest.raises(DestinationError, match="2 attempts"):
        load.load([{"id": 3, "v": True}])
    assert load.rows() == [(1, 5), (2, 6), (2, 6)]


def test_rows_written_for_the_old_columns_never_spoil_the_new(iceberg_load: Make) -> None:
    """A writer of another program whose append began before, and is committed after."""
    load = iceberg_load("id long, v long", type_conflicts="cast", in_catalog=True)
    load.load([{"id": 1, "v": 5}])
    transaction = IcebergTransaction(load.reader(), load.name, "warehouse")
    late = transaction._table
    (file,) = late.currentSnapshot().addedDataFiles(late.io())
    load.struct = struct("id long, v boolean")
    load.load([{"id": 3, "v": True}])
    late.newAppend().appendFile(file).commit()
    assert load.rows() == [(1, "5"), (1, None), (3, "true")]


def test_marks_outlive_a_cast(lake_load: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run killed between the cast and its flush knows what it has committed before."""
    load = lake_load("id long, v long", type_conflicts="cast")
    load.load([{"id": 1, "v": 5}], noted=True)
    load.struct = struct("id long, v boolean")

    def killed(*_: Any) -> None:
        raise RuntimeError("killed")

    monkeypatch.setattr(load.destination._form, "append", killed)
    with pytest.raises(DestinationError, match="killed"):
        load.load([{"id": 3, "v": True}], noted=True)
    assert load.rows() == [(1, "5")]
    left = frozenset(load.noted[:1])
    load.begin()
    assert load.recall() == left


def test_an_overwrite_with_more_columns_keeps_not_null(lake_load: Make) -> None:
    load = lake_load("id long not null, k int not null, v long", keys=("id",), method="overwrite",
                     column_names="snake")  # fmt: skip
    load.load([{"id": 1, "k": 1}])
    load.end()
    load.begin()
    load.struct = struct("v long, `New One` date, id long not null, k int")
    load.load([{"id": 2, "k": None}])
    load.end()
    assert load.required() == ["id"]
    assert load.rows("id", "k", "v", "new_one") == [(2, None, None, None)]
    assert load.other_reader().required == ["id"]
    load.begin()
    load.load([{"id": 3}])
    load.end()
    assert load.required() == ["id"]
    assert load.rows("id", "new_one") == [(3, None)]


@pytest.mark.parametrize("in_catalog", [pytest.param(False, marks=pytest.mark.slow), True])
def test_an_overwrite_with_other_columns_declares_what_a_new_table_has(
    iceberg_load: Make, in_catalog: bool
) -> None:
    load = iceberg_load("id long not null, gone date", keys=("id",), method="overwrite",
                     in_catalog=in_catalog)  # fmt: skip
    load.load([{"id": 1}])
    load.end()
    assert load.required() == ["id"]
    load.begin()
    load.struct = struct("v string not null, id long not null, k int not null, w long")
    load.schema = {"properties": {"k": {"description": "it's"}}}
    load.load([{"id": 1, "k": 2, "v": "x"}])
    load.end()
    assert load.required() == ["v", "id", "k"]
    assert load.rows() == [("x", 1, 2, None)]
    assert load.properties()["identifier-fields"] == "[id]"
    actual = load.other_reader()
    assert actual.rows == [{"v": "x", "id": 1, "k": 2, "w": None}]
    assert actual.required == ["v", "id", "k"]
    assert actual.comments["k"] == "it's"
    load.begin()
    load.struct = struct("v string, id long not null, k int not null, w long")
    load.load([{"id": 1, "k": 2, "v": None}])
    load.end()
    assert load.required() == ["id", "k"]
    assert load.rows() == [(None, 1, 2, None)]


def test_an_overwrite_gives_back_not_null_that_a_table_has_lost(iceberg_load: Make) -> None:
    load = iceberg_load("id long not null", keys=("id",), method="overwrite")
    load.load([{"id": 1}])
    load.end()
    load.sql("ALTER TABLE {t} DROP IDENTIFIER FIELDS id")
    load.sql("ALTER TABLE {t} ALTER COLUMN id DROP NOT NULL")
    load.begin()
    load.load([{"id": 2}])
    load.end()
    assert load.rows() == [(2,)]
    assert load.required() == ["id"]
    assert load.properties()["identifier-fields"] == "[id]"


def test_a_cast_keeps_what_is_required(iceberg_load: Make) -> None:
    load = iceberg_load("id long not null, v long, k int not null", keys=("id",), method="upsert",
                     type_conflicts="cast")  # fmt: skip
    load.load([{"id": 1, "v": 5, "k": 1}])
    load.struct = struct("id long not null, v boolean, k int not null")
    load.load([{"id": 1, "v": True, "k": 1}, {"id": 2, "v": None, "k": 2}])
    assert load.rows() == [(1, "true", 1), (2, None, 2)]
    assert load.required() == ["id", "k"]


def test_null_in_a_required_column_leaves_the_table_as_it_was(lake_load: Make) -> None:
    load = lake_load("id long not null", method="overwrite")
    load.load([{"id": 1}])
    load.end()
    load.begin()
    load.struct = struct("id long not null, v long")
    load.load([{"id": None, "v": 2}])
    with pytest.raises(RefusedByStoreError, match=r"(?i)null"):
        load.end()
    assert [row[0] for row in load.rows()] == [1]


@pytest.mark.parametrize("in_catalog", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_layout_columns_may_change_their_type_by_overwrite(
    iceberg_load: Make, in_catalog: bool
) -> None:
    layout = Layout(partition_by=("p", "bucket(2, id)", "days(at)"), cluster_by=("s",))
    load = iceberg_load("id long, p int, at timestamp, s long, o struct<a: int>",
                        layout=layout, method="overwrite", in_catalog=in_catalog)  # fmt: skip
    load.load([{"id": 1, "p": 2}])
    load.end()
    load.begin()
    load.layout = Layout(partition_by=("p", "truncate(1, id)", "years(at)"), cluster_by=("s", "p"))
    load.struct = struct("id string, p string, at date, s string, o struct<a: int, b: int>")
    load.load([{"id": f"i{n}", "p": "x", "s": str(9 - n)} for n in range(4)])
    load.end()
    described = {row[0]: row[1] for row in load.sql("DESCRIBE EXTENDED {t}")}
    parts = [described[f"Part {n}"] for n in range(3)]
    assert parts == ["p", "truncate(1, id)", "years(at)"]
    assert load.properties()["sort-order"] == "s ASC NULLS FIRST, p ASC NULLS FIRST"
    assert load.sql("SELECT count(*) FROM {t}.partitions")[0][0] == 1
    load.method, load.keys = "upsert", ("id",)
    load.begin()
    load.load([{"id": "i1", "p": "x", "s": "b"}, {"id": "new", "p": "y"}])
    actual = [("i0", "9"), ("i1", "b"), ("i2", "7"), ("i3", "6"), ("new", None)]
    assert load.rows("id", "s") == actual


def test_a_table_gets_and_loses_its_partitions_and_order(iceberg_load: Make) -> None:
    load = iceberg_load("id long, s string", method="overwrite", in_catalog=True)
    expected: list[tuple[Layout, dict[str, Any]]] = [
        (Layout(), {"partitions": [], "order": None, "mode": None}),
        (
            Layout(partition_by=("bucket(2, id)",), cluster_by=("s",), properties={"a'b": "c"}),
            {"partitions": ["bucket(2, id)"], "order": "s ASC NULLS FIRST", "mode": "none"},
        ),
        (
            Layout(cluster_by=("id",)),
            {"partitions": [], "order": "id ASC NULLS FIRST", "mode": "range"},
        ),
    ]
    for number, (layout, shown) in enumerate(expected):
        load.layout = layout
        load.struct = struct(f"id long, s string, n{number} int")
        load.begin()
        load.load([{"id": 3, "s": "b"}, {"id": 2, "s": "c"}, {"id": 1, "s": "a"}])
        load.end()
        assert len(load.rows()) == 3
        actual = {row[0]: row[1] for row in load.sql("DESCRIBE EXTENDED {t}")}
        properties = load.properties()
        assert [actual[f"Part {n}"] for n in range(9) if f"Part {n}" in actual] == shown[
            "partitions"
        ]
        assert properties.get("sort-order") == shown["order"]
        assert properties.get("write.distribution-mode") == shown["mode"]
    assert properties["a'b"] == "c"


def test_a_replaced_table_may_hold_variants(lake_load: Make) -> None:
    load = lake_load("id long, v long", method="overwrite")
    load.load([{"id": 1, "v": 1}])
    load.end()
    load.begin()
    load.struct = struct("id long, v variant")
    load.load([{"id": 1, "v": '{"a": 1}'}])
    load.end()
    assert load.columns() == [("id", "bigint"), ("v", "variant")]
    assert [value.toJson() for (value,) in load.rows("v")] == ['{"a":1}']
