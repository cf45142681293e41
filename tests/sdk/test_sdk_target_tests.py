"""The Meltano SDK's own tests of targets, each with its input, against every destination.

A class of `singer_sdk.testing.target_tests` that is in none of the tables below fails a test: it
has to be decided about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from case_matrix import matrix
from sdk_places import PLACES, Place, Rows
from sdk_programs import Session, SparkTarget
from singer_sdk.exceptions import InvalidRecord
from singer_sdk.testing import target_tests as sdk
from singer_sdk.testing.config import SuiteConfig
from singer_sdk.testing.runners import TargetTestRunner
from singer_sdk.testing.templates import TargetFileTestTemplate, TargetTestTemplate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.costly]


@dataclass(frozen=True)
class Otherwise:
    """An expectation of the SDK that is not followed.

    Attributes:
        why: The reason.
        raises: What the SDK's test ends with here.
        match: Of its text.
        loads: Whether the records and STATE are there all the same.
    """

    why: str
    raises: type[BaseException]
    match: str
    loads: bool = False


FOLLOWED = {
    sdk.TargetArrayData,
    sdk.TargetCamelcaseComplexSchema,
    sdk.TargetCamelcaseTest,
    sdk.TargetCliPrintsTest,
    sdk.TargetDuplicateRecords,
    sdk.TargetEncodedStringData,
    sdk.TargetNoPrimaryKeys,
    sdk.TargetOptionalAttributes,
    sdk.TargetPrimaryKeyUpdates,
    sdk.TargetRecordMissingOptionalFields,
    sdk.TargetSchemaNoProperties,
    sdk.TargetSchemaUpdates,
    sdk.TargetSpecialCharsInAttributes,
}
REFUSED = {sdk.TargetRecordBeforeSchemaTest, sdk.TargetRecordMissingKeyProperty}
"""Followed too: the test passes as the input is refused."""
OTHERWISE = {
    sdk.TargetInvalidSchemaTest: Otherwise(
        "a schema without properties is valid: each record is stored as one JSON text",
        pytest.fail.Exception,
        "DID NOT RAISE",
        loads=True,
    ),
    sdk.TargetMultipleStateMessages: Otherwise(
        "one commit covers several STATE messages: only the last of them goes out",
        AssertionError,
        "test_multiple_state_messages_a",
        loads=True,
    ),
    sdk.TargetRecordMissingRequiredProperty: Otherwise(
        "the schema requires the property; the SDK's own sinks refuse such a record too",
        InvalidRecord,
        "property 'id'",
    ),
}
OTHERWISE_IN = {
    ("postgresql", sdk.TargetEncodedStringData): Otherwise(
        "PostgreSQL cannot store NUL, and no text is changed to fit: the record is rejected",
        InvalidRecord,
        "NUL",
    ),
}
UPSERTED = {"streams": {"test_duplicate_records": {"load_method": "upsert"}}}
"""The SDK leaves it to the target which of several records of a key stays."""


def _classes() -> list[type[TargetTestTemplate]]:
    """All test classes of the installed SDK."""
    actual = (one for one in vars(sdk).values() if isinstance(one, type))
    return [one for one in actual if one.__module__ == sdk.__name__]


def test_every_class_of_the_sdk_is_decided_about() -> None:
    assert set(_classes()) == FOLLOWED | REFUSED | OTHERWISE.keys()


@pytest.mark.parametrize(("test_class", "place"), matrix(_classes(), PLACES), indirect=["place"])
def test_target(test_class: type[TargetTestTemplate], place: Place, spark: SparkSession) -> None:
    is_upsert = "path" not in place.settings or place.name in {"delta", "iceberg"}
    settings = {**place.settings, **(UPSERTED if is_upsert else {})}
    runner = TargetTestRunner(SparkTarget, settings, session=Session(spark))  # type: ignore[arg-type]
    other = OTHERWISE_IN.get((place.name, test_class)) or OTHERWISE.get(test_class)
    fails: AbstractContextManager[Any] = nullcontext()
    if other is not None:
        fails = pytest.raises(other.raises, match=other.match)
    test = test_class()
    with fails:
        test.run(SuiteConfig(), None, runner)
    if isinstance(test, TargetFileTestTemplate):
        sent = _Sent([json.loads(line) for line in test.singer_filepath.read_text().splitlines()])
        is_loaded = test_class not in REFUSED and (other is None or other.loads)
        check(sent if is_loaded else _Sent([]), sent.streams, place, runner, is_upsert)


class _Sent:
    """What a target was sent."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.schemas = {m["stream"]: m for m in messages if m["type"] == "SCHEMA"}
        self.streams = {m["stream"] for m in messages if "stream" in m}
        self.states = [m["value"] for m in messages if m["type"] == "STATE"]
        self._records = [m for m in messages if m["type"] == "RECORD"]

    def records(self, stream: str, is_upsert: bool) -> Rows:
        """The rows that its table is to have."""
        actual = [m["record"] for m in self._records if m["stream"] == stream]
        if is_upsert and stream in UPSERTED["streams"]:
            (key,) = self.schemas[stream]["key_properties"]
            actual = list({record[key]: record for record in actual}.values())
        return actual


def check(
    sent: _Sent, streams: set[str], place: Place, runner: TargetTestRunner, is_upsert: bool
) -> None:
    """Compare tables and STATE with what was sent."""
    for stream in streams:
        expected, actual = sent.records(stream, is_upsert), place.rows(stream) or []
        for record in expected:
            same = [row for row in actual if _holds(row, record)]
            assert same, f"{record} of {stream} is not in {actual}"
            actual.remove(same[0])
        assert actual == [], f"nothing else is in {stream}"
    states = runner.state_messages
    assert states[-1:] == sent.states[-1:]
    later: Iterator[Any] = iter(sent.states)
    assert all(state in later for state in states), "in the order in which they came"


def _holds(row: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Whether a row of any table is a record: with its values, and nothing but null besides."""
    own = {name: value for name, value in row.items() if not name.startswith("_sdc_")}
    return own.keys() >= record.keys() and all(
        _is_same(value, record.get(name)) for name, value in own.items()
    )


def _is_same(actual: Any, sent: Any) -> bool:
    """Whether a stored value is the one that was sent; nested ones may be kept as JSON."""
    if isinstance(actual, str) and not isinstance(sent, str):
        actual = json.loads(actual, parse_float=Decimal)
    if isinstance(actual, Mapping) and isinstance(sent, Mapping):
        return all(_is_same(actual.get(name), sent.get(name)) for name in {*actual, *sent})
    if isinstance(actual, list) and isinstance(sent, list):
        return len(actual) == len(sent) and all(map(_is_same, actual, sent))
    return bool(actual == sent)
