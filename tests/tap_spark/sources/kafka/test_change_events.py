"""Avro by a schema registry, and Debezium's change events, from a real broker."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from registry_server import RegistryServer
from tap_runs import failure
from topic_reads import DELETED, TopicReads, last_state, records

from shared.errors import SourceError

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
AT = 1_767_225_600_123
AT_TEXT = "2026-01-01T00:00:00.123000+00:00"
DEBEZIUM = {"envelope": "debezium", "key_format": "json"}


def avro(number: int, schema: Any, value: Any) -> bytes:
    """Return a value in Confluent's wire format."""
    out = io.BytesIO(struct.pack(">bI", 0, number))
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def record(kind_name: str, /, **fields: Any) -> dict[str, Any]:
    listed = [
        {"name": key, "type": kind, **({"default": None} if isinstance(kind, list) else {})}
        for key, kind in fields.items()
    ]
    return {"type": "record", "name": kind_name, "fields": listed}


def change(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": AT, "source": {"table": "t"}}


def with_schema(value: Any) -> dict[str, Any]:
    return {"schema": {"type": "struct", "optional": False}, "payload": value}


def story(key: Any = lambda n: {"id": n}, value: Any = lambda v: v) -> Sequence[tuple[Any, Any]]:
    """Return the messages of a table: a snapshot, inserts, an update, two deletions."""
    one, two, new = ({"id": n, "name": name} for n, name in ((1, "a"), (2, "b"), (1, "c")))
    return [
        (key(1), value(change("r", after=one))),
        (key(2), value(change("c", after=two))),
        (key(1), value(change("u", before=one, after=new))),
        (key(2), value(change("d", before=two))),
        (key(2), None),
        (key(1), value(change("d"))),
    ]


UNWRAPPED = [
    {"id": 1, "name": "a", DELETED: False},
    {"id": 2, "name": "b", DELETED: False},
    {"id": 1, "name": "c", DELETED: False},
    {"id": 2, "name": "b", DELETED: True},
    {"id": 2, "name": None, DELETED: True},
    {"id": 1, "name": None, DELETED: True},
]


def test_debezium_in_json(reads: TopicReads) -> None:
    plain, enveloped = reads.broker.topic(), reads.broker.topic()
    reads.broker.send(plain, story())
    reads.broker.send(enveloped, story(lambda n: with_schema({"id": n}), with_schema))
    inferred = reads.run(reads.config(topic=enveloped, **DEBEZIUM))
    assert inferred[1]["key_properties"] == ["id"]
    assert records(inferred) == UNWRAPPED
    deleted = [m["record"][DELETED] for m in inferred if m["type"] == "RECORD"]
    assert deleted[3] == deleted[5] == AT_TEXT
    assert deleted[4] > AT_TEXT
    supplied = {"schema": "id BIGINT, name STRING", "key_schema": "id BIGINT"}
    assert records(reads.run(reads.config(topic=plain, **DEBEZIUM, **supplied))) == UNWRAPPED


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (change("t"), "the table was truncated"),
        ({"id": 1}, "is not a change event of Debezium"),
        (change("u"), "is not a change event of Debezium"),
    ],
)
def test_what_is_no_change_of_a_row_is_an_error(reads: TopicReads, value: Any, text: str) -> None:
    topic = reads.broker.topic()
    reads.broker.send(topic, [({"id": 1}, value)])
    config = reads.config(topic=topic, schema="id BIGINT", key_schema="id BIGINT", **DEBEZIUM)
    (piece,) = reads.slices(config)
    actual = failure(piece.frame.collect)
    assert text in actual
    assert f"topic {topic}, partition 0, offset 0" in actual


def test_avro_of_several_versions(reads: TopicReads) -> None:
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    money = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    old = record("order", id="long", at=moment)
    new = record("order", id="long", at=moment, total=["null", money])
    topic = reads.broker.topic()
    subjects = {f"{topic}-value": [(3, old), (70_000, new)], "keys": [(5, {"type": "long"})]}
    moment_value = 1_767_225_600_000
    first, second = ({"id": n, "at": moment_value} for n in (1, 2))
    reads.broker.send(topic, [(avro(5, "long", 1), avro(3, old, first))])
    with RegistryServer(subjects, needs_login=True) as registry:
        connection = {"schema_registry": registry.url}
        settings = {
            "topic": topic,
            "value_format": "avro",
            "key_format": "avro",
            "key_subject": "keys",
        }
        config = reads.config(connection, **settings)
        actual = reads.run(config)
        at = "2026-01-01T00:00:00.000000+00:00"
        assert actual[1]["key_properties"] == ["key"]
        one = {"key": 1, "id": 1, "at": at, "total": None, DELETED: False}
        assert records(actual) == [one]
        more = {**second, "total": Decimal("1.50")}
        reads.broker.send(topic, [(avro(5, "long", 2), avro(70_000, new, more))])
        reads.broker.send(topic, [(avro(5, "long", 1), None)])
        (two, gone) = records(reads.run(config, last_state(actual)))
        assert {**two, "total": str(two["total"])} == {
            **{"key": 2, "id": 2, "at": at, "total": "1.50", DELETED: False}
        }
        assert gone == {"key": 1, "id": None, "at": None, "total": None, DELETED: True}
        reads.broker.send(topic, [(avro(5, "long", 3), avro(4, old, first))])
        pieces = list(reads.slices(config, last_state(actual)))
        reported = failure(pieces[-1].frame.collect)
        assert "by a schema of its subject: 0000000004" in reported
        assert f"topic {topic}, partition 0, offset 3" in reported


def test_debezium_in_avro_and_a_registry_that_refuses(reads: TopicReads) -> None:
    row = record("Value", id="long", name=["null", "string"])
    images = {"before": ["null", row], "after": ["null", "Value"]}
    envelope = record("Envelope", **images, op="string", ts_ms=["null", "long"])
    topic, key = reads.broker.topic(), record("Key", id="long")
    subjects: dict[str, Any] = {
        f"{topic}-key": [(1, key)],
        f"{topic}-value": [(2, envelope)],
        "other-value": [(3, "syntax = 'proto3';")],
    }
    sent = story(lambda n: avro(1, key, {"id": n}), lambda v: avro(2, envelope, v))
    reads.broker.send(topic, sent)
    settings = {"key_format": "avro", "value_format": "avro"}
    with RegistryServer(subjects) as registry:
        connection = {"schema_registry": registry.url}
        config = reads.config(connection, topic=topic, envelope="debezium", **settings)
        assert records(reads.run(config)) == UNWRAPPED
        for subject, text in (
            ("nothing", "it has no subject 'nothing'"),
            ("other-value", "type PROTOBUF, not AVRO"),
        ):
            wrong = reads.config(connection, topic=topic, value_subject=subject, **settings)
            with pytest.raises(SourceError, match=text):
                reads.run(wrong)
        registry.needs_login = True
        secret = connection["schema_registry"].replace("//", "//me:my-word@")
        with pytest.raises(SourceError, match="it answers 401") as caught:
            reads.run(reads.config({"schema_registry": secret}, topic=topic, **settings))
        assert "my-word" not in str(caught.value)
    with pytest.raises(SourceError, match="set 'schema_registry'"):
        reads.run(reads.config(topic=topic, **settings))
