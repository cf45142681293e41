"""The Meltano SDK's own tests of taps, of streams and of attributes, against tap-spark.

A class of `singer_sdk.testing.tap_tests` that is in none of the tables below fails a test: it has
to be decided about.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sdk_programs import Session, SparkTap
from singer_sdk.testing import tap_tests as sdk
from singer_sdk.testing.config import SuiteConfig
from singer_sdk.testing.runners import TapTestRunner
from singer_sdk.testing.templates import (
    AttributeTestTemplate,
    StreamTestTemplate,
    TapTestTemplate,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]

FOLLOWED = {
    sdk.TapCLIPrintsTest,
    sdk.TapDiscoveryTest,
    sdk.TapStreamConnectionTest,
    sdk.TapValidFinalStateTest,
    sdk.StreamSchemaIsValidTest,
    sdk.StreamReturnsRecordTest,
    sdk.StreamCatalogSchemaMatchesRecordTest,
    sdk.StreamRecordSchemaMatchesCatalogTest,
    sdk.StreamRecordMatchesStreamSchema,
    sdk.StreamPrimaryKeysTest,
    sdk.AttributeIsDateTimeTest,
    sdk.AttributeIsBooleanTest,
    sdk.AttributeIsObjectTest,
    sdk.AttributeIsIntegerTest,
    sdk.AttributeIsNumberTest,
    sdk.AttributeNotNullTest,
}
CSV = """id,name,price,at,day,open
1,Ann,1.5,2026-01-01T10:00:00Z,2026-01-01,true
2,Bob,2.25,2026-01-03T00:00:00.5Z,1969-12-31,false
3,,,,,
"""
DDL = "id long, name string, price double, at timestamp, day date, open boolean"
ITEMS_DDL = (
    "a long not null, b string not null, inner struct<n: int, at: date>, "
    "list array<struct<k: double>>, exact decimal(20, 2), w int"
)
ITEMS = (
    "(1, 'x', named_struct('n', 5, 'at', date'2026-01-01'), array(named_struct('k', 1.5)), 1.1, 1),"
    " (1, 'y', null, array(), null, null)"
)


def _classes() -> list[type[Any]]:
    """All test classes of the installed SDK."""
    actual = (one for one in vars(sdk).values() if isinstance(one, type))
    return [one for one in actual if one.__module__ == sdk.__name__]


def _settings(spark: SparkSession, folder: Path) -> dict[str, Any]:
    (folder / "people.csv").write_text(CSV)
    spark.sql(f"create table delta.`{folder}/items` ({ITEMS_DDL}) using delta")
    spark.sql(f"insert into delta.`{folder}/items` values {ITEMS}")
    people = {"format": "csv", "path": str(folder / "people.csv"), "schema": DDL}
    items = {"format": "delta", "path": str(folder / "items")}
    return {
        "streams": [
            {"name": "people", "key_properties": ["id"], "options": {"header": True}, **people},
            {"name": "items", "key_properties": ["a", "b"], **items},
            {"name": "since", "key_properties": ["id"], "options": {"header": True}, **people,
             "replication_key": "at", "replication_method": "INCREMENTAL"},
        ]
    }  # fmt: skip


@pytest.fixture(scope="module")
def runner(lake_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> TapTestRunner:
    """A tap whose records and STATE have been kept."""
    folder = tmp_path_factory.mktemp("sdk")
    settings = _settings(lake_spark, folder)
    actual = TapTestRunner(SparkTap, settings, session=Session(lake_spark))  # type: ignore[arg-type]
    actual.sync_all()
    return actual


def test_every_class_of_the_sdk_is_decided_about() -> None:
    assert set(_classes()) == FOLLOWED


@pytest.mark.parametrize("test_class", _classes(), ids=lambda one: f"{one.__name__}")
def test_tap(test_class: type[Any], runner: TapTestRunner) -> None:
    config, ran = SuiteConfig(), 0
    if issubclass(test_class, TapTestTemplate):
        test_class().run(config, None, runner)
        return
    for stream in runner.new_tap().streams.values():
        for arguments in _arguments(test_class, stream):
            test_class().run(config, None, runner, stream, *arguments)
            ran += 1
    assert ran, "there is something that it applies to"


def _arguments(
    test_class: type[StreamTestTemplate], stream: Any
) -> Iterator[tuple[()] | tuple[str]]:
    """What the SDK's factory gives to a test of a stream: nothing, or attributes that it fits."""
    if not issubclass(test_class, AttributeTestTemplate):
        yield ()
        return
    for name, node in stream.schema["properties"].items():
        if test_class.evaluate(stream, name, node):
            yield (name,)


def test_the_records_are_those_of_the_files(runner: TapTestRunner) -> None:
    assert [record["id"] for record in runner.records["people"]] == [1, 2, 3]
    assert sorted(record["b"] for record in runner.records["items"]) == ["x", "y"]
    assert runner.state_messages[-1]["value"]["bookmarks"]["since"]
