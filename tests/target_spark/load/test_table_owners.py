"""Streams of one table: rejected if one would destroy the other's rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from postgres_server import PASSWORD, Database
from whole_runs import run_target

from shared.engine.engine import Engine
from shared.errors import SettingsError
from target_spark.config import target_config
from target_spark.core.load_plans import Backfill, StreamSchema
from target_spark.load.loader import Loader
from target_spark.load.mapped_loader import MappedLoader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = {
    "spark": {"conf": {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog"}},
    "catalog": "lake",
}
PLACES: dict[str, dict[str, Any]] = {
    "parquet": {"path": "out"},
    "parquet on S3": {"path": "s3://bucket/out", "format": "parquet"},
    "delta": {"path": "out", "format": "delta"},
    "delta in a catalog": {"catalog": "spark_catalog", "format": "delta"},
    "iceberg": {"path": "out", "format": "iceberg"},
    "iceberg in a catalog": {"format": "iceberg", **CATALOG},
    "postgresql": {"format": "jdbc", "jdbc": {"url": "jdbc:postgresql://127.0.0.1:1/d"}},
    "mariadb": {"format": "jdbc", "jdbc": {"url": "jdbc:mariadb://127.0.0.1:1/d"}},
}
SHARE = frozenset(place for place in PLACES if place.startswith(("delta", "iceberg")))
CATALOGS = {"delta in a catalog", "iceberg in a catalog"}
SCHEMA = {"type": "object", "properties": {"id": {"type": ["integer", "null"]}}}


def no_spark() -> Any:
    raise AssertionError


def loader(place: str, kind: type[Loader] = Loader, **settings: Any) -> Loader:
    return kind(target_config({**PLACES[place], **settings}), Engine.of(no_spark))


def plan(loading: Loader, *streams: str) -> None:
    for stream in streams:
        loading.plan(StreamSchema(stream, SCHEMA))


def is_refused(place: str, names: Sequence[str], /, **settings: Any) -> bool:
    try:
        plan(loader(place, **settings), *names)
    except SettingsError:
        return True
    return False


ONE = {"*": {"table": "t"}}
PARTS = {"s-*": {"schema": "{schema}", "table": "{table}"}, "u": {"schema": "s", "table": "t"}}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("names", "rules"),
    [(("a", "b"), ONE), (("s-t", "t"), {"s-*": {"table": "{table}"}}), (("s-t", "u"), PARTS)],
)
def test_overwrite_shares_no_table(place: str, names: tuple[str, str], rules: Any) -> None:
    assert is_refused(place, names, streams=rules, load_method="overwrite")
    # Also if only one of them is replaced, in either order.
    for whole in names:
        one = {**rules, f"[{whole[0]}]{whole[1:]}": {"load_method": "overwrite"}}
        assert is_refused(place, names, streams=one), whole
    assert not is_refused(place, names[:1] * 2, streams=rules, load_method="overwrite")


@pytest.mark.parametrize("method", ["overwrite", "append-only"])
@pytest.mark.parametrize("kind", [Loader, MappedLoader])
def test_dead_letters_replace_no_table(kind: type[Loader], method: str) -> None:
    letters = StreamSchema("a", SCHEMA, are_letters=True)
    loading = loader("parquet", kind, load_method=method, overwrite_unfinished=True)
    with (
        pytest.raises(SettingsError, match="stream 'a', setting 'load_method': dead letters")
        if method == "overwrite"
        else nullcontext()
    ):
        loading.plan(letters)


@pytest.mark.parametrize("place", PLACES)
def test_rows_of_several_streams_are_added_where_the_format_allows_it(place: str) -> None:
    together = {"streams": {"*": {"table": "t"}}}
    assert is_refused(place, ("a", "b"), **together) is (place not in SHARE)


@pytest.mark.parametrize("place", sorted(SHARE))
def test_streams_of_one_table_ask_for_the_same_partitions(place: str) -> None:
    def streams(*asked: str, **more: str) -> Any:
        return {"a": {"table": "t", "partition_by": asked}, "b": {"table": "t", **more}}

    assert not is_refused(place, ("a", "b"), streams=streams("id"))
    assert not is_refused(place, ("a", "b"), streams=streams("id"), partition_by=["id"])
    with pytest.raises(SettingsError, match=r"'a' and 'b' share .*different partitions") as error:
        plan(loader(place, streams=streams("id"), partition_by=["name"]), "a", "b")
    assert (error.value.where.stream, error.value.where.setting) == ("b", "partition_by")
    nested = {"a": {"partition_by": ["id"]}, "b": {"schema": "a", "partition_by": ["name"]}}
    assert not is_refused(place, ("a", "b"), streams=nested)


@pytest.mark.parametrize("place", PLACES)
def test_names_that_differ_by_case_only(place: str) -> None:
    # PostgreSQL's quoted names differ by case; elsewhere it may be one table.
    wanted = place != "postgresql"
    assert is_refused(place, ("Orders", "orders"), load_method="overwrite") is wanted
    assert is_refused(place, ("Orders", "orders")) is (wanted and place not in SHARE)
    assert not is_refused(place, ("orders", "orders2"), load_method="overwrite")


@pytest.mark.parametrize("place", sorted(CATALOGS))
def test_names_that_become_one_legal_name(place: str) -> None:
    assert is_refused(place, ("a-b", "a b"), load_method="overwrite")


@pytest.mark.parametrize("place", ["postgresql", "mariadb"])
def test_a_style_of_column_names_makes_no_tables_one(place: str) -> None:
    settings = {"load_method": "overwrite", "column_names": "snake"}
    assert not is_refused(place, ("AbCd", "ab_cd"), **settings)


@pytest.mark.parametrize(("place", "schema"), [("postgresql", "public"), ("mariadb", "d")])
def test_a_schema_that_is_named_and_the_one_that_is_not(place: str, schema: str) -> None:
    streams = {"b": {"table": "a", "schema": schema}}
    assert is_refused(place, ("a", "b"), streams=streams, load_method="overwrite")


@pytest.mark.parametrize("place", ["parquet", "delta", "iceberg", "parquet on S3"])
def test_a_table_inside_the_folder_of_another_one(place: str) -> None:
    streams = {"b": {"schema": "a"}}
    for order in (("a", "b"), ("b", "a")):
        assert is_refused(place, order, streams=streams, load_method="overwrite")
    assert not is_refused(place, ("aa", "b"), streams=streams, load_method="overwrite")


def test_the_error_says_what_to_change() -> None:
    with pytest.raises(SettingsError) as caught:
        plan(loader("delta", load_method="overwrite"), "Orders", "orders")
    assert caught.value.exit_code == 2
    text = str(caught.value)
    for word in ("'Orders'", "'orders'", "/out/orders'", "overwrite", "`table`", "`streams`"):
        assert word in text


def test_a_stream_that_comes_again_keeps_its_table() -> None:
    loading = loader("parquet", load_method="overwrite")
    plan(loading, "a", "b", "a")


def test_outputs_of_stream_maps_count_by_their_names() -> None:
    maps = {"a": {"id": "id"}, "b": {"__source__": "a", "id": "id"}}
    settings = {"stream_maps": maps, "load_method": "overwrite", "streams": {"*": {"table": "t"}}}
    mapped = loader("delta", MappedLoader, **settings)
    with pytest.raises(SettingsError, match="streams 'a' and 'b' would share the table"):
        plan(mapped, "a")
    renamed = {"x": {"__alias__": "y"}}
    mapped = loader("iceberg", MappedLoader, stream_maps=renamed, load_method="overwrite")
    with pytest.raises(SettingsError, match="'y' and 'Y'"):
        plan(mapped, "x", "Y")


def test_a_version_concerns_the_rows_of_one_stream() -> None:
    together = {"streams": {"*": {"table": "t"}}}
    loading = loader("delta", **together)
    plan(loading, "a", "b")
    with pytest.raises(SettingsError, match="rows of the stream 'b'"):
        loading.activate(StreamSchema("a", SCHEMA), 1)
    later = loader("delta", **together)
    plan(later, "a")
    later._tables.claim_alone("a", "ACTIVATE_VERSION")
    with pytest.raises(SettingsError, match="rows of the stream 'b'"):
        plan(later, "b")
    # Streams of one table may come in runs of their own.
    named = {"streams": {"a": {"table": "t"}, "b": {"table": "t"}, "c": {"schema": "s"}}}
    alone = loader("delta", **named)
    plan(alone, "a", "c")
    for message in ("ACTIVATE_VERSION", "KEYS"):
        with pytest.raises(SettingsError, match=f"{message} would .* rows of the stream 'b'"):
            alone._tables.claim_alone("a", message)
        alone._tables.claim_alone("c", message)
    part = {stream: Backfill(stream, "id", "1", "5") for stream in "ac"}
    for stream, message in (("a", "--backfill would also .* rows of the stream 'b'"), ("c", "")):
        backfill = replace(target_config({**PLACES["delta"], **named}), backfill=part[stream])
        with pytest.raises(SettingsError, match=message) if message else nullcontext():
            plan(Loader(backfill, Engine.of(no_spark)), stream)
    unversioned = loader("delta", activate_version=False, **together)
    plan(unversioned, "a", "b")
    unversioned.activate(StreamSchema("a", SCHEMA), 1)


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.parametrize("place", ["parquet", "delta", "iceberg", "postgresql"])
def test_the_table_of_before_stays(
    place: str, lake_spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    settings = {**PLACES[place], "load_method": "overwrite", "add_record_metadata": False}
    settings["streams"] = {"b": {"table": "a"}}
    if place == "postgresql":
        database: Database = request.getfixturevalue("postgres")
        database.run("drop schema public cascade; create schema public")
        settings["jdbc"] = {"url": database.url, "user": "postgres", "password": PASSWORD}
    else:
        settings["path"] = str(tmp_path / "out")
    config = target_config(settings)

    def run(*streams: str) -> list[bytes]:
        lines: list[dict[str, Any]] = []
        for number, stream in enumerate(streams, 10 * len(streams)):
            lines.append({"type": "SCHEMA", "stream": stream, "schema": SCHEMA})
            lines.append({"type": "RECORD", "stream": stream, "record": {"id": number}})
        lines.append({"type": "STATE", "value": 1})
        return run_target(config, Loader(config, Engine.of(lambda: lake_spark)), tmp_path, lines)

    def rows() -> list[int]:
        if place == "postgresql":
            return [int(line) for line in database.run("select id from a order by 1").split()]
        table = tmp_path / "out" / "a"
        name = f"{place}.`{table}`"
        if place == "iceberg":
            actual = lake_spark.read.format("iceberg").load(str(table))
        else:
            actual = lake_spark.sql(f"SELECT id FROM {name}")
        return sorted(row["id"] for row in actual.collect())

    assert run("a") == [b"1\n"]
    assert rows() == [10]
    with pytest.raises(SettingsError, match="streams 'a' and 'b' would share"):
        run("a", "b")
    assert rows() == [10]
