"""Tables of both formats: read whole, by a key, and by their log when it has gaps."""

from __future__ import annotations

import functools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from lake_runs import DELETED, Copy, LakeStream, table_rows

from shared.errors import SourceError
from tap_spark.sources import source_failures
from tap_spark.sources.lakes import delta_source, iceberg_source, lake_source
from tap_spark.sources.lakes.lake_tables import FolderTables
from tap_spark.sources.source import source_for
from tap_spark.stream_config import ConnectionConfig, StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
MAPPED = "TBLPROPERTIES (delta.enableChangeDataFeed=true, delta.columnMapping.mode='name')"
WIDENING = "TBLPROPERTIES (delta.enableChangeDataFeed = true, delta.enableTypeWidening = true)"
NUMBERS = pa.schema({"id": pa.int64(), "a": pa.int32()})
COLUMNS = (
    "id BIGINT, `a.b 'c` STRING, d DECIMAL(38,10), f DOUBLE, ok BOOLEAN, day DATE, "
    "at TIMESTAMP, local TIMESTAMP_NTZ, raw BINARY, tags ARRAY<STRING>, "
    "m MAP<STRING, INT>, s STRUCT<x: INT, y: STRUCT<z: STRING>>"
)
VALUES = """
(1, 'x', 12345678901234567890.0123456789, -0.0, true, DATE'1999-12-31',
 TIMESTAMP'2026-03-29 02:30:00.123456 UTC', TIMESTAMP_NTZ'2026-03-29 02:30:00', X'00FF',
 array('a', null), map('k', 1, 'n', null), named_struct('x', 1, 'y', named_struct('z', 'ü'))),
(2, null, null, double('NaN'), null, null, null, null, null, null, null, null)
"""


class World:
    """Tables of one format, each under a name of its own."""

    def __init__(self, spark: SparkSession, kind: str, folder: Path) -> None:
        self.spark, self.kind, self.folder = spark, kind, folder
        self.relation, self.stream_place = self._place("t")

    def _place(self, name: str) -> tuple[str, dict[str, str]]:
        if self.kind == "delta":
            path = f"{self.folder}/{name}"
            return f"delta.`{path}`", {"path": path}
        relation = f"ice.reads.`{self.folder.name} {name}`"
        return relation, {"table": relation}

    def sql(self, text: str) -> World:
        self.spark.sql(text.replace("{t}", self.relation))
        return self

    def create(self, columns: str, properties: str = "") -> World:
        properties = (properties or FEED) if self.kind == "delta" else ""
        return self.sql(f"CREATE TABLE {{t}} ({columns}) USING {self.kind} {properties}")

    def begin(self, **configuration: str) -> World:
        """Create a table of the columns `id` and `a`, that of Delta without Spark."""
        if self.kind != "delta":
            return self.create("id BIGINT, a INT")
        wanted = configuration or {"delta.enableChangeDataFeed": "true"}
        DeltaTable.create(self.path, NUMBERS, configuration=wanted)
        return self

    def insert(self, *rows: tuple[int, int]) -> World:
        if self.kind != "delta":
            return self.sql(f"INSERT INTO {{t}} VALUES {', '.join(map(str, rows))}")
        table = pa.table(list(zip(*rows, strict=True)), schema=NUMBERS)
        write_deltalake(self.path, table, mode="append")
        return self

    def update(self, value: str) -> World:
        if self.kind != "delta":
            return self.sql(f"UPDATE {{t}} SET a = {value}")
        self.delta.update({"a": f"cast({value} as int)"})
        return self

    def delete(self, where: str) -> World:
        if self.kind != "delta":
            return self.sql(f"DELETE FROM {{t}} WHERE {where}")
        self.delta.delete(where)
        return self

    @property
    def path(self) -> str:
        return self.stream_place["path"]

    @property
    def delta(self) -> DeltaTable:
        """The table as the package sees it now, which takes a hundredth of Spark's time."""
        return DeltaTable(self.path)

    def config(self, method: str = "LOG_BASED", **more: Any) -> StreamConfig:
        place: dict[str, Any] = self.stream_place
        return StreamConfig("t", self.kind, replication_method=method, **place, **more)

    def stream(self, method: str = "LOG_BASED", **more: Any) -> LakeStream:
        return LakeStream(self.spark, self.config(method, **more), keys=("id",))


@pytest.fixture(params=["delta", "iceberg"])
def world(request: pytest.FixtureRequest, lake_spark: SparkSession, tmp_path: Path) -> World:
    return World(lake_spark, request.param, tmp_path)


@pytest.fixture
def delta_world(lake_spark: SparkSession, tmp_path: Path) -> World:
    return World(lake_spark, "delta", tmp_path)


@pytest.fixture
def iceberg_world(lake_spark: SparkSession, tmp_path: Path) -> World:
    return World(lake_spark, "iceberg", tmp_path)


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def test_every_value_is_the_tables_own_by_each_method(world: World) -> None:
    world.create(COLUMNS, MAPPED).sql(f"INSERT INTO {{t}} VALUES {VALUES}")
    wanted = by_id(table_rows(world.spark, world.relation))
    assert wanted[0]["s"] == {"x": 1, "y": {"z": "ü"}}
    assert by_id(world.stream("FULL_TABLE").read()) == wanted
    keyed = replace(world.config("INCREMENTAL"), replication_key="id")
    assert by_id(LakeStream(world.spark, keyed, keys=("id",)).read()) == wanted
    logged = world.stream()
    assert by_id(logged.read()) == [{**row, DELETED: None} for row in wanted]
    world.sql("UPDATE {t} SET tags = array('q') WHERE id = 2").sql("DELETE FROM {t} WHERE id = 1")
    changed, deleted = logged.read()
    assert changed == {**wanted[1], "tags": ["q"], DELETED: None}
    assert {**deleted, DELETED: None} == {**wanted[0], DELETED: None}
    assert deleted[DELETED][-6:] == "+00:00"


def test_the_metadata_tell_the_rows_of_the_version_that_is_read(world: World) -> None:
    def reported(method: str, **more: Any) -> int | None:
        stream = world.stream(method, **more)
        (slice_,) = source_for(stream.config).slices(world.spark, stream.plan())
        return slice_.told_rows

    world.begin().insert((1, 0), (2, 0), (3, 0))
    assert reported("FULL_TABLE") == 3
    world.delete("id = 1")
    assert reported("LOG_BASED") == 2
    assert reported("INCREMENTAL", replication_key="id") is None
    assert reported("FULL_TABLE", options={"maxRecordsPerBatch": "1"}) is None


def test_a_run_sees_the_version_it_began_with(world: World) -> None:
    world.begin().insert((1, 0))
    begun = []
    for method in ("FULL_TABLE", "LOG_BASED"):
        stream = world.stream(method)
        slices = source_for(stream.config).slices(world.spark, stream.plan())
        begun.append((next(slices), slices))
    world.insert((2, 0))
    for piece, _ in begun:
        assert [row.id for row in piece.frame.collect()] == [1]


def test_a_killed_run_resumes_after_its_last_complete_slice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = functools.partial(lake_source.group_commits, max_commits=2)
    monkeypatch.setattr(f"tap_spark.sources.lakes.{world.kind}_source.group_commits", few)
    stream, copy = world.begin().insert((0, 0)).stream(), Copy()
    copy.apply(stream.read())
    for number in range(1, 4):
        world.insert((number, 0)).update("a + 1")
    cut = stream.slices()
    copy.apply(next(cut)[1])
    next(cut)  # written, but its STATE did not go out
    rest = list(stream.slices())
    assert len(rest) == 2
    for piece, records in rest:
        assert piece.ordered
        copy.apply(records)
    assert copy.same_as(table_rows(world.spark, world.relation))


def test_a_catalog_keeps_its_columns_while_the_table_gets_more(world: World) -> None:
    stream = world.create("id BIGINT, a STRING").sql("INSERT INTO {t} VALUES (1, 'x')").stream()
    stream.entry = stream.discover()
    stream.read()
    world.sql("ALTER TABLE {t} ADD COLUMNS (b INT)").sql("INSERT INTO {t} VALUES (2, 'y', 5)")
    assert stream.read() == [{"id": 2, "a": "y", DELETED: None}]


def test_a_missing_selected_column_is_an_error(world: World) -> None:
    stream = world.create("id BIGINT, a STRING", MAPPED).stream()
    stream.entry = stream.discover()
    world.sql("ALTER TABLE {t} DROP COLUMN a")
    with pytest.raises(SourceError, match=r"stream 't': .*no longer in the table: a .*--discover"):
        stream.read()


def test_a_column_of_a_wider_type_than_the_catalogs_is_an_error(world: World) -> None:
    stream = world.create("id BIGINT, a INT", WIDENING).stream()
    stream.entry = stream.discover()
    world.sql("ALTER TABLE {t} ALTER COLUMN a TYPE BIGINT")
    with pytest.raises(SourceError, match="column 'a' is bigint, not int as in the catalog"):
        stream.read()


def test_the_tables_own_deletion_times_are_kept(world: World) -> None:
    world.create(f"id BIGINT, {DELETED} TIMESTAMP, a INT")
    world.sql("INSERT INTO {t} VALUES (1, TIMESTAMP'2026-01-01 00:00:00 UTC', 3), (2, null, 4)")
    stream = world.stream()
    first = by_id(stream.read())
    assert [row[DELETED] for row in first] == ["2026-01-01T00:00:00.000000+00:00", None]
    world.delete("id = 2")
    (deleted,) = stream.read()
    assert (deleted["id"], deleted["a"]) == (2, 4)
    assert deleted[DELETED] is not None


def test_an_empty_table_is_followed_from_its_first_row(world: World) -> None:
    stream = world.begin().stream()
    assert stream.read() == []
    world.insert((1, 0))
    assert stream.read() == [{"id": 1, "a": 0, DELETED: None}]
    assert stream.read() == []


def test_a_bookmark_of_another_delta_table_is_refused(delta_world: World) -> None:
    stream = delta_world.begin().stream()
    for mark, problem in (
        ({"version": "x"}, "not a number"),
        ({"version": 7}, "only at 0"),
        ({"version": 0, "table_id": "y"}, "replaced"),
    ):
        stream.state = {"bookmarks": {"t": mark}}
        with pytest.raises(SourceError, match=f"stream 't': .*{problem}.*bookmark"):
            stream.read()


def test_a_bookmark_of_another_iceberg_table_is_refused(iceberg_world: World) -> None:
    stream = iceberg_world.begin().insert((1, 0)).stream()
    for mark, problem in (
        ({"snapshot_id": "x"}, "not a number"),
        ({"snapshot_id": 77}, "expired"),
        ({"snapshot_id": "1", "table_id": "y"}, "replaced"),
    ):
        stream.state = {"bookmarks": {"t": mark}}
        with pytest.raises(SourceError, match=f"stream 't': .*{problem}.*bookmark"):
            stream.read()


def test_a_delta_table_must_record_its_changes(delta_world: World) -> None:
    plain = delta_world.begin(**{"delta.appendOnly": "false"})
    with pytest.raises(SourceError, match=r"does not record its changes .*enableChangeDataFeed"):
        plain.stream().read()
    plain.insert((1, 0))
    plain.delta.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    late = plain.stream()
    late.state = {"bookmarks": {"t": {"version": 0}}}
    with pytest.raises(SourceError, match="did not record its changes in every version after 0"):
        late.read()
    fresh = plain.stream()
    assert fresh.read() == [{"id": 1, "a": 0, DELETED: None}]


def test_missing_delta_history_is_reported(delta_world: World) -> None:
    world = delta_world.begin().insert((1, 0))
    stream, late = world.stream(), world.stream()
    stream.read()
    late.state = stream.state
    world.update("1").update("2")
    # As VACUUM does with files of changes and of older versions.
    for file in {*world.folder.rglob("*.parquet")} - {Path(f) for f in world.delta.file_uris()}:
        file.unlink()
    with pytest.raises(Exception, match="FILE_NOT_EXIST") as caught:
        stream.read()
    reported = str(source_failures.source_error("t", caught.value))
    assert "remove the stream's bookmark" in reported
    world.insert((9, 9))
    world.delta.create_checkpoint()
    for log in (world.folder / "t" / "_delta_log").glob("0*.json"):
        if int(log.name.split(".")[0]) < 3:
            log.unlink()
    with pytest.raises(
        SourceError, match="changes after version 1 are no longer in the table's log"
    ):
        late.read()


def expire(world: World) -> None:
    name = world.relation.split(".", 1)[1]
    world.sql(
        f"CALL ice.system.expire_snapshots(table => '{name}', "
        "older_than => TIMESTAMP'2100-01-01 00:00:00', retain_last => 1)"
    )


def test_missing_iceberg_history_is_reported(iceberg_world: World) -> None:
    world = iceberg_world.create("id BIGINT, a INT").sql("INSERT INTO {t} VALUES (1, 0)")
    stream = world.stream()
    stream.read()
    world.sql("INSERT INTO {t} VALUES (2, 0)")
    expire(world)
    # Its own snapshot is not needed to read what follows it.
    assert stream.read() == [{"id": 2, "a": 0, DELETED: None}]
    world.sql("INSERT INTO {t} VALUES (3, 0)").sql("INSERT INTO {t} VALUES (4, 0)")
    expire(world)
    with pytest.raises(SourceError, match="no longer in the table: it has expired"):
        stream.read()
    stream.state = {}
    stream.read()
    world.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    world.sql("INSERT INTO {t} VALUES (5, 0), (6, 0)")
    stream.read()
    world.sql("DELETE FROM {t} WHERE id = 5")
    expire(world)  # this one must be compared with the one before, which is gone
    with pytest.raises(SourceError, match="no longer in the table: it has expired"):
        stream.read()


def test_iceberg_without_a_readable_metadata_file_is_read_by_what_spark_shows(
    iceberg_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tap_spark.sources.lakes.iceberg_source._text_of", lambda *_: None)
    world = iceberg_world.create("id BIGINT, a INT").sql("INSERT INTO {t} VALUES (1, 0)")
    stream, copy = world.stream(), Copy()
    copy.apply(stream.read())
    world.sql("UPDATE {t} SET a = 5").sql("INSERT INTO {t} VALUES (2, 0)")
    copy.apply(stream.read())
    assert copy.same_as(table_rows(world.spark, world.relation))


def test_an_iceberg_table_rolled_back_is_compared(iceberg_world: World) -> None:
    world = iceberg_world.create("id BIGINT").sql("INSERT INTO {t} VALUES (1)")
    stream, copy = world.stream(), Copy()
    copy.apply(stream.read())
    first = stream.bookmark["snapshot_id"]
    world.sql("INSERT INTO {t} VALUES (2)").sql("DELETE FROM {t} WHERE id = 1")
    copy.apply(stream.read())
    name = world.relation.split(".", 1)[1]
    world.sql(f"CALL ice.system.rollback_to_snapshot(table => '{name}', snapshot_id => {first})")
    copy.apply(stream.read())
    assert list(copy.rows) == [1]
    assert stream.read() == []


def test_a_rename_brings_every_row_again_and_the_bookmark_waits(world: World) -> None:
    world.create("id BIGINT, s STRUCT<x: INT, y: INT>", MAPPED)
    world.sql("INSERT INTO {t} VALUES (1, named_struct('x', 1, 'y', 2)), (2, null)")
    stream = world.stream()
    stream.read()
    world.sql("DELETE FROM {t} WHERE id = 2").sql("ALTER TABLE {t} RENAME COLUMN s.x TO z")
    slices = list(stream.slices())
    assert [piece.bookmark is None for piece, _ in slices][-2:] == [True, False]
    copy = Copy(rows={1: {}, 2: {}})
    copy.apply(record for _, records in slices for record in records)
    assert copy.rows == {1: {"id": 1, "s": {"z": 1, "y": 2}}}
    assert stream.read() == []


def test_rows_replaced_by_rows_of_other_columns_are_compared(delta_world: World) -> None:
    world = delta_world.create("id INT, a INT", WIDENING).sql(
        "INSERT INTO {t} VALUES (1, 1), (2, 2)"
    )
    stream, copy = world.stream(), Copy()
    copy.apply(stream.read())
    world.sql("INSERT INTO {t} VALUES (3, 3)").sql("ALTER TABLE {t} ALTER COLUMN a TYPE BIGINT")
    frame = world.spark.createDataFrame([(2, "q"), (5, "w")], "id BIGINT, b STRING")
    writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.save(world.stream_place["path"])
    records = stream.read()
    copy.apply(records)
    assert copy.same_as([{"id": 2, "b": "q"}, {"id": 5, "b": "w"}])
    odd = world.spark.createDataFrame([("k", "q")], "id STRING, b STRING")
    odd.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(
        world.stream_place["path"]
    )
    with pytest.raises(SourceError, match=r"column 'id' is bigint, not string.*bookmark"):
        stream.read()


@pytest.mark.parametrize("lists", [True, False])
def test_an_iceberg_folder_of_any_catalog_is_read_by_its_newest_metadata(
    iceberg_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, lists: bool
) -> None:
    monkeypatch.setattr(iceberg_source, "_reads_here", lambda *_: lists)
    world = iceberg_world.create("id BIGINT NOT NULL, a STRING")
    world.sql("ALTER TABLE {t} SET IDENTIFIER FIELDS id").sql("INSERT INTO {t} VALUES (1, 'x')")
    named = LakeStream(world.spark, world.config("FULL_TABLE"))
    assert named.discover()["key_properties"] == ["id"]
    (row,) = world.spark.sql(f"SELECT file FROM {world.relation}.metadata_log_entries").collect()[
        -1:
    ]
    folder = tmp_path / "lake" / "t[1]"
    shutil.copytree(Path(row.file).parents[1], folder)
    for file in (folder / "metadata").glob("v*.metadata.json"):
        number = int(file.name[1:].split(".")[0])
        file.rename(file.with_name(f"{number - 1:05d}-aa.metadata.json"))
    copied = StreamConfig("t", "iceberg", path=str(folder), replication_method="LOG_BASED")
    stream = LakeStream(world.spark, copied)
    assert stream.read() == [{"id": 1, "a": "x", DELETED: None}]
    assert stream.plan().key_properties == ("id",)


def test_tables_below_a_folder_become_entries(delta_world: World, tmp_path: Path) -> None:
    delta_world.begin().insert((1, 0))
    (tmp_path / "broken" / "_delta_log").mkdir(parents=True)
    actual = FolderTables(ConnectionConfig("lake", path=str(tmp_path), exclude=("broken",)))
    (table,) = actual.tables(delta_world.spark)
    assert (table.stream.name, table.schema_name, table.table_name) == ("t", None, "t")
    assert table.struct.names == ["id", "a"]
    assert table.stream.connection == "lake"
    with pytest.raises(SourceError, match=r"stream 'broken': Delta table .* does not exist"):
        list(FolderTables(ConnectionConfig("lake", path=str(tmp_path))).tables(delta_world.spark))


@pytest.mark.parametrize("place", [{"path": "{tmp}"}, {"table": "spark_catalog.default.nowhere"}])
def test_a_missing_table_is_one_clear_error(
    world: World, tmp_path: Path, place: dict[str, str]
) -> None:
    where: dict[str, Any] = {key: text.format(tmp=tmp_path) for key, text in place.items()}
    config = StreamConfig("t", world.kind, **where)
    with pytest.raises(
        SourceError, match=r"stream 't': (Delta|Iceberg) table .* not exist .*check"
    ):
        source_for(config).schema(world.spark)


@pytest.mark.parametrize("name", ["versionAsOf", "startingVersion", "snapshot-id"])
def test_options_that_the_program_sets_are_refused(tmp_path: Path, name: str) -> None:
    config = StreamConfig("t", "delta", path=str(tmp_path), options={name: "1"})
    with pytest.raises(SourceError, match=f"sets the options {name}"):
        source_for(config)


def test_paths_and_names_are_checked_without_spark(tmp_path: Path) -> None:
    for place in ({"path": f"{tmp_path}/no"}, {"path": ("a", "b")}, {"table": "a..b"}):
        with pytest.raises(
            SourceError, match=r"folder .* does not exist|one path|not a table name"
        ):
            source_for(StreamConfig("t", "iceberg", **place))
    assert delta_source.DeltaSource(StreamConfig("t", "delta", table='c."d.e"')).name == "`c`.`d.e`"


def test_a_time_of_iceberg_is_named_with_a_remedy(lake_spark: SparkSession, tmp_path: Path) -> None:
    fields = [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "opens", "required": False, "type": "time"},
        {
            "id": 3,
            "name": "hours",
            "required": False,
            "type": {"type": "list", "element-id": 4, "element": "time", "element-required": False},
        },
    ]
    document = {
        **{"format-version": 2, "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"},
        **{"location": str(tmp_path), "last-sequence-number": 0, "last-updated-ms": 1},
        **{"last-column-id": 4, "current-schema-id": 0, "default-spec-id": 0},
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "partition-specs": [{"spec-id": 0, "fields": []}],
        **{"last-partition-id": 999, "default-sort-order-id": 0},
        "sort-orders": [{"order-id": 0, "fields": []}],
        **{"properties": {}, "current-snapshot-id": -1, "snapshots": []},
    }
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "v1.metadata.json").write_text(json.dumps(document))
    (tmp_path / "metadata" / "version-hint.text").write_text("1")
    with pytest.raises(SourceError) as caught:
        source_for(StreamConfig("s", "iceberg", path=str(tmp_path))).schema(lake_spark)
    text = str(caught.value)
    assert "'opens' (time), 'hours' (time)" in text
    assert "string or long" in text
