"""Settings of topics and their connections."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from registry_server import RegistryServer

from shared.errors import InvalidSettingsError, SourceError
from tap_spark.config import tap_config
from tap_spark.sources.kafka import kafka_source
from tap_spark.sources.kafka.message_columns import SchemaRegistry
from tap_spark.sources.kafka.topic_offsets import OffsetRange, TopicFacts

CONNECTION = {"name": "events", "brokers": "kafka:9092"}
STREAM = {"name": "s", "format": "kafka", "topic": "t"}


def config(item: dict[str, Any], /, **stream: Any) -> Any:
    return tap_config({"connections": [item], "streams": [{**STREAM, **stream}]})


def test_a_topic_is_read_by_its_log_with_sparks_packages() -> None:
    created = config(CONNECTION)
    (stream,) = created.streams
    assert (stream.connection, stream.replication_method) == ("events", "LOG_BASED")
    packages = ",".join(created.spark.packages)
    assert "spark-sql-kafka-0-10" in packages
    assert "spark-avro" in packages
    listed = tap_config({"connections": [CONNECTION]}).spark.packages
    assert listed == created.spark.packages
    assert config(CONNECTION, replication_method="FULL_TABLE").streams[0].replication_method == (
        "FULL_TABLE"
    )


@pytest.mark.parametrize(
    ("connection", "stream", "text"),
    [
        ({"name": "x", "path": "/lake"}, {}, "'connections' has none with brokers"),
        (CONNECTION, {"connection": "y"}, "'y' is not a connection with brokers"),
        ({**CONNECTION, "user": "me"}, {}, "applies only with 'url'"),
        ({"name": "x", "path": "/lake", "options": {}}, {}, "applies only with 'brokers'"),
        ({**CONNECTION, "options": {"ssl": "x"}}, {}, "must begin with 'kafka.'"),
        ({**CONNECTION, "options": {"kafka.bootstrap.servers": "x"}}, {}, "setting 'brokers'"),
        ({**CONNECTION, "schema_registry": "me:pass-word@x"}, {}, "must begin with 'http://'"),
        ({**CONNECTION, "schema_registry": "http://me:[pass-word]@x"}, {}, "is not a URL"),
        ({**CONNECTION, "schema_registry": "http://x:abc"}, {}, "is not a URL"),
        (CONNECTION, {"options": {"startingOffsets": "latest"}}, "is not an option"),
        (CONNECTION, {"starting_offsets": "newest"}, "neither 'earliest', 'latest'"),
        (CONNECTION, {"starting_offsets": {"a": 1}}, "not the number of a partition"),
        (CONNECTION, {"starting_offsets": {"0": -1}}, "starting_offsets"),
        (CONNECTION, {"envelope": "debezium"}, "key_format"),
        (
            CONNECTION,
            {"envelope": "debezium", "key_format": "json", "value_format": "text"},
            "valu",
        ),
        (CONNECTION, {"schema": "a INT", "value_format": "text"}, "value_format 'text'"),
        (CONNECTION, {"key_schema": "INT", "key_format": "text"}, "key_format 'text'"),
        (CONNECTION, {"value_subject": "x"}, "applies only to 'avro'"),
    ],
)
def test_wrong_settings(connection: Any, stream: Any, text: str) -> None:
    with pytest.raises(InvalidSettingsError) as caught:
        config(connection, **stream)
    assert text in str(caught.value)
    assert "pass-word" not in str(caught.value)


def test_logins_are_not_shown() -> None:
    secret = {"kafka.sasl.jaas.config": {"not": "text"}, "kafka.sasl.password": ["my-word"]}
    with pytest.raises(InvalidSettingsError) as caught:
        config({**CONNECTION, "options": secret})
    assert "my-word" not in str(caught.value)


def test_a_bookmark_is_read_although_the_first_messages_have_expired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (stream,) = config(CONNECTION, starting_offsets={"0": 100}).streams
    facts = TopicFacts({0: 500}, {0: 900})
    monkeypatch.setattr(kafka_source, "topic_facts", lambda *_: (facts, {0: 100}))
    source = kafka_source.KafkaSource(stream)
    plan = Mock(bookmark={"offsets": {"0": 800}})
    assert source._planned(Mock(), plan)[1] == OffsetRange({0: 800}, {0: 900})
    with pytest.raises(SourceError, match="partition 0 has the offsets 500 to 900, not 100"):
        source._planned(Mock(), Mock(bookmark={}))


def test_deleted_versions_of_a_subject_are_never_the_newest() -> None:
    proto = "syntax = 'proto3';"
    schemas: list[Any] = [{"type": "long"}, {"type": "int"}, proto, ["long"], ["int"]]
    with RegistryServer({"s": [*enumerate(schemas, 10)]}, deleted={2, 3, 5}) as registry:
        versions = SchemaRegistry(registry.url).versions("s")
        assert [version.number for version in versions] == [11, 14, 10, 13]
        registry.deleted = range(1, 6)
        with pytest.raises(SourceError, match="or only deleted versions of it"):
            SchemaRegistry(registry.url).versions("s")
