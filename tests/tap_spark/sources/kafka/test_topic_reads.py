"""Topics of a real broker: rows, deletions, STATE, and what is gone."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from kafka_broker import LOGIN
from tap_runs import failure
from topic_reads import DELETED, TopicReads, last_state, offsets, records

from shared.engine.engine import Engine
from shared.errors import SourceError
from shared.spark import kafka_admin
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import plan_streams
from tap_spark.send.line_output import StateWriter
from tap_spark.send.run import Run
from tap_spark.send.spark_slices import first_slices
from tap_spark.send.sync import begun
from tap_spark.sources.kafka.kafka_source import reader_options
from tap_spark.sources.kafka.topic_offsets import queried_ends, queried_starts, topic_facts

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
DDL = {"schema": "id BIGINT, name STRING", "key_schema": "id BIGINT", "key_format": "json"}
PLAIN = {"schema": "n BIGINT"}


def numbers(first: int, end: int) -> list[tuple[None, Any]]:
    return [(None, {"n": n}) for n in range(first, end)]


def row(key: int, name: str | None = None, *, deleted: bool = False) -> dict[str, Any]:
    return {"id": key, "name": name, DELETED: deleted}


def test_runs_read_what_is_new_and_tombstones_delete(reads: TopicReads) -> None:
    topic = reads.broker.topic(2)
    sent = [({"id": n}, {"id": n, "name": f"n{n}"}) for n in range(3)]
    reads.broker.send(topic, sent)
    reads.broker.send(topic, [({"id": 9}, {"id": 9, "name": "x"}), ({"id": 9}, None)], 1)
    extra = {"metadata_columns": ["topic", "partition", "offset", "timestamp"]}
    config = reads.config(topic=topic, key_format="json", **extra)
    first = reads.run(config)
    assert first[1]["key_properties"] == ["id"]
    assert list(first[1]["schema"]["properties"])[2:6] == [
        f"_kafka_{name}" for name in extra["metadata_columns"]
    ]
    actual = records(first)
    places = [
        (r.pop("_kafka_topic"), r.pop("_kafka_partition"), r.pop("_kafka_offset")) for r in actual
    ]
    times = [r.pop("_kafka_timestamp") for r in actual]
    assert actual == [row(0, "n0"), row(1, "n1"), row(2, "n2"), row(9, "x"), row(9, deleted=True)]
    assert places == [(topic, 0, 0), (topic, 0, 1), (topic, 0, 2), (topic, 1, 0), (topic, 1, 1)]
    assert first[-2]["record"][DELETED] == times[-1]
    assert offsets(first) == {"0": 3, "1": 2}
    reads.broker.add_partitions(topic, 3)
    reads.broker.send(topic, [({"id": 5}, {"id": 5, "name": "new"})], 2)
    reads.broker.send(topic, [({"id": 0}, None), (None, {"name": "a"}), (None, {"name": "b"})])
    config = reads.config(topic=topic, **DDL)
    second = reads.run(config, last_state(first))
    keyless = [{"id": None, "name": name} for name in ("a", "b")]
    assert records(second) == [
        row(0, deleted=True),
        *({**one, DELETED: False} for one in keyless),
        row(5, "new"),
    ]
    assert offsets(second) == {"0": 6, "1": 2, "2": 1}
    third = reads.run(config, last_state(second))
    assert records(third) == []
    assert last_state(third) == last_state(second)
    # New partitions move keys: offsets of two partitions have no order.
    reads.broker.send(topic, [({"id": 1}, {"id": 1, "name": "moved"}), ({"id": 2}, None)], 2)
    reads.broker.send(topic, [({"id": 5}, {"id": 5, "name": "last"})], 2, at=1_000)
    whole = reads.run(reads.config(topic=topic, replication_method="FULL_TABLE", **DDL))
    rows = [{"id": n, "name": name} for n, name in ((1, "moved"), (5, "last"))]
    assert sorted(records(whole), key=lambda r: (r["id"] or 9, r["name"])) == [*rows, *keyless]


def test_text_and_keys_that_are_single_values(reads: TopicReads) -> None:
    topic = reads.broker.topic()
    reads.broker.send(topic, [("a", "Zoë\n"), ("b", None), ("1", "")])
    actual = reads.run(reads.config(topic=topic, key_format="text", value_format="text"))
    assert actual[1]["key_properties"] == ["key"]
    assert records(actual) == [
        {"key": "a", "value": "Zoë\n", DELETED: False},
        {"key": "b", "value": None, DELETED: True},
        {"key": "1", "value": "", DELETED: False},
    ]
    topic = reads.broker.topic()
    reads.broker.send(topic, [(n, {"n": n}) for n in (7, 8)])
    config = reads.config(topic=topic, key_format="json")
    catalog = reads.catalog(config)
    # The catalog tells the columns: no sample of other messages changes them.
    reads.broker.send(topic, [(9, {"n": 9, "more": 1})])
    actual = reads.run(config, catalog=catalog)
    assert records(actual) == [{"key": n, "n": n, DELETED: False} for n in (7, 8, 9)]
    reads.broker.send(topic, [(9.5, None)])
    text = failure(lambda: reads.run(config, catalog=catalog))
    assert "property 'key': 9.5 is not of type integer" in text
    assert f"topic {topic}, partition 0, offset 3" in text


def test_inferred_columns_fit_later_messages(reads: TopicReads) -> None:
    topic = reads.broker.topic()
    values = [
        {"a b": 1.5, "i": 1, "m": 1, "o": {"x`": [True], "y": {}}, "e": None},
        {"a b": 2, "m": "x"},
    ]
    reads.broker.send(topic, [(None, value) for value in values])
    (plan,) = reads.catalog(reads.config(topic=topic))["streams"]
    types = {name: field["type"][0] for name, field in plan["schema"]["properties"].items()}
    assert types == {
        **{"a b": "number", "e": "string", "i": "integer", "m": "string", "o": "object"}
    }
    with pytest.raises(SourceError, match=r"cannot be read exactly as struct<m:map<int,int>>"):
        reads.catalog(reads.config(topic=topic, schema="m MAP<INT, INT>"))


@pytest.mark.parametrize(
    ("value", "settings", "text"),
    [
        (b"{bad", PLAIN, "offset 1'"),
        (b'{"n":2}\n{"n":3}', PLAIN, "Extra data"),
        ({"n": 1.5}, PLAIN, "1.5 is not of type integer"),
        ([1], PLAIN, "is not JSON of the stream's columns"),
        ({"n": "x"}, PLAIN, '{"n": "x"}'),
        (b"\xff", {"value_format": "text"}, "is not UTF-8 text"),
        (None, PLAIN, "set 'key_format'"),
    ],
)
def test_messages_that_cannot_be_read_are_errors(
    reads: TopicReads, value: Any, settings: Any, text: str
) -> None:
    topic = reads.broker.topic()
    reads.broker.send(topic, [(None, {"n": 1}), (None, value)])
    (piece,) = reads.slices(reads.config(topic=topic, **settings))
    actual = failure(piece.frame.collect)
    assert text in actual
    assert f"topic {topic}, partition 0, offset 1" in actual


@pytest.mark.parametrize("size", [{}, {"batch_size": 3}])
def test_batch_files_in_the_order_of_the_messages(
    reads: TopicReads, tmp_path: Path, size: dict[str, int]
) -> None:
    topic = reads.broker.topic(2)
    reads.broker.send(topic, numbers(0, 4))
    reads.broker.send(topic, numbers(4, 8), 1)
    batch = {
        "encoding": {"format": "parquet", "compression": "none"},
        "storage": {"root": str(tmp_path / "files")},
        **size,
    }
    actual = reads.run(reads.config(topic=topic, offsets_per_slice=4, batch=batch, **PLAIN))
    files = [m["manifest"][0].removeprefix("file://") for m in actual if m["type"] == "BATCH"]
    rows = [pq.read_table(file).to_pylist() for file in files]
    assert [row["n"] for part in rows for row in part] == [0, 1, 4, 5, 2, 3, 6, 7]
    assert not size or [len(part) for part in rows] == [3, 3, 2]
    marks = [m["value"]["bookmarks"]["s"] for m in actual if m["type"] == "STATE"]
    assert marks[0]["offsets"] == {"0": 0, "1": 0}
    assert marks[0]["until"] == offsets(actual) == {"0": 4, "1": 4}


def test_where_a_stream_without_bookmark_begins(reads: TopicReads) -> None:
    topic = reads.broker.topic(3)
    for partition in (0, 1):
        for hour in range(4):
            at = 1_767_225_600_000 + hour * 3_600_000
            reads.broker.send(topic, numbers(hour, hour + 1), partition, at=at)

    catalog = reads.catalog(reads.config(topic=topic, **PLAIN))

    def start(supplied: Any) -> Any:
        config = reads.config(topic=topic, starting_offsets=supplied, **PLAIN)
        return list(reads.plan(config, catalog=catalog).bookmark["offsets"].values())

    assert start("earliest") == [0, 0, 0]
    assert start("latest") == [4, 4, 0]
    assert start("2026-01-01T01:30:00Z") == [2, 2, 0]
    assert start("2026-01-01T03:00:00+01:00") == [2, 2, 0]
    assert start("2027-01-01") == [4, 4, 0]
    assert start({"1": 3}) == [0, 3, 0]
    for wrong, text in (({"1": 5}, "has the offsets 0 to 4, not 5"), ({"7": 0}, "does not exist")):
        with pytest.raises(SourceError, match=text):
            start(wrong)
    # What came between the first run and the second is not lost by `latest`.
    config = reads.config(topic=topic, starting_offsets="latest", **PLAIN)
    before = reads.run(config)
    reads.broker.send(topic, numbers(4, 5), 2)
    assert [r["n"] for r in records(reads.run(config, last_state(before)))] == [4]


def test_an_interrupted_run_is_repeated_with_the_same_slices(reads: TopicReads) -> None:
    topic = reads.broker.topic(2)
    reads.broker.send(topic, numbers(0, 7))
    reads.broker.send(topic, numbers(0, 3), 1)
    config = reads.config(topic=topic, offsets_per_slice=4, **PLAIN)
    catalog = reads.catalog(config)

    def marks(state: Any = None) -> list[Any]:
        return [piece.bookmark for piece in reads.slices(config, state, catalog)]

    begin = reads.plan(config).bookmark
    assert begin["until"] == {"0": 7, "1": 3}
    # One STATE says so of every stream, before any record: the target waits for nothing then.
    lines: list[bytes] = []
    (plan,) = plan_streams(config, catalog, None, 1)
    plans = [plan, replace(plan, tap_stream_id="other")]
    writer = StateWriter({"bookmarks": {}}, lines.append, 1e9)
    begun(Run(Engine.of(lambda: reads.spark), None), plans, writer)  # type: ignore[arg-type]
    (line,) = lines
    assert json.loads(line)["value"]["bookmarks"] == {"s": begin, "other": begin}
    planned = marks()
    assert [mark["offsets"] for mark in planned] == [
        {"0": 2, "1": 2},
        {"0": 4, "1": 3},
        {"0": 7, "1": 3},
    ]
    assert [bool(mark["until"]) for mark in planned] == [True, True, False]
    reads.broker.send(topic, numbers(7, 20), 1)
    assert marks({"bookmarks": {"s": begin}}) == planned
    assert marks({"bookmarks": {"s": planned[0]}}) == planned[1:]
    assert marks({"bookmarks": {"s": planned[-1]}})[-1]["offsets"] == {"0": 7, "1": 16}


def test_messages_that_are_gone_are_an_error_or_a_warning(
    reads: TopicReads, caplog: pytest.LogCaptureFixture
) -> None:
    topic = reads.broker.topic()
    reads.broker.send(topic, numbers(0, 4))
    stop, go_on = (
        reads.config(topic=topic, on_data_loss=how, **PLAIN) for how in ("stop", "continue")
    )
    begin = reads.plan(stop).bookmark
    state = {"bookmarks": {"s": {**begin, "offsets": {"0": 1}, "until": {}}}}
    (planned,) = reads.slices(stop, state)
    reads.broker.expire(topic, {0: 3})
    # They may also expire between the plan and the read.
    assert "'on_data_loss'" in failure(planned.frame.collect)
    with pytest.raises(SourceError) as caught:
        reads.run(stop, state)
    assert "(2 offsets): partition 0 begins at offset 3, after 1" in str(caught.value)
    assert "set 'on_data_loss' to 'continue'" in str(caught.value)
    with caplog.at_level(logging.WARNING):
        actual = reads.run(go_on, state)
    assert [r["n"] for r in records(actual)] == [3]
    assert "begins at offset 3, after 1; reading what is left" in caplog.text
    reads.broker.delete(topic)
    reads.broker.create(topic)
    reads.broker.send(topic, numbers(10, 16))
    with pytest.raises(SourceError, match="was deleted and created again"):
        reads.run(stop, last_state(actual))
    again = reads.run(go_on, last_state(actual))
    assert [r["n"] for r in records(again)] == list(range(10, 16))
    newer = {**begin, "topic_id": None, "offsets": {"0": 9}, "until": {}}
    with pytest.raises(SourceError, match="ends at offset 6, before 9"):
        reads.run(stop, {"bookmarks": {"s": newer}})


def test_only_committed_messages_of_transactions(
    reads: TopicReads, caplog: pytest.LogCaptureFixture
) -> None:
    topic = reads.broker.topic()
    with reads.broker.transaction() as producer:
        reads.broker.send(topic, numbers(0, 2), producer=producer)
    with reads.broker.transaction() as producer:
        reads.broker.send(topic, numbers(2, 4), producer=producer)
        raise ArithmeticError
    with reads.broker.transaction() as producer:
        reads.broker.send(topic, numbers(4, 5), producer=producer)
        actual = reads.run(reads.config(topic=topic, **PLAIN))
        assert [r["n"] for r in records(actual)] == [0, 1]
        # The end is before the open transaction, so that its messages come once it has ended.
        assert offsets(actual) == {"0": 6}
        options = {"kafka.isolation.level": "read_uncommitted"}
        dirty = reads.run(reads.config(topic=topic, options=options, **PLAIN))
        assert [r["n"] for r in records(dirty)] == [0, 1, 2, 3, 4]
    later = reads.run(reads.config(topic=topic, **PLAIN), last_state(actual))
    assert [r["n"] for r in records(later)] == [4]
    assert "records were sent" not in caplog.text


def test_counts_balance_by_offsets(reads: TopicReads) -> None:
    plain, compacted = reads.broker.topic(), reads.broker.topic(cleanup_policy="compact")
    counts = []
    for topic in (plain, compacted):
        reads.broker.send(topic, [("k", {"n": 1}), ("k", {"n": 2})])
        (piece,) = reads.slices(reads.config(topic=topic, **PLAIN))
        counts.append(piece.told_rows)
    assert counts == [2, None]
    (limited,) = first_slices([piece], 1)
    assert [row["n"] for row in limited.frame.collect()] == [1]


def test_discovery_lists_topics_with_their_formats(reads: TopicReads) -> None:
    rows, words, empty = (f"found.{name}" for name in ("rows", "words", "empty"))
    for name in (rows, words, empty):
        reads.broker.create(name)
    change = {"before": None, "after": {"id": 1, "name": "a"}, "op": "c", "ts_ms": 1}
    reads.broker.send(rows, [({"id": 1}, change)])
    reads.broker.send(words, [(None, "word")])
    connection = {"include": ["found.*"], "stream_prefix": "k-"}
    config = reads.config(connection, topic=rows)
    actual = catalog_for(reads.spark, config)["streams"]
    entries = {entry["tap_stream_id"]: entry for entry in actual}
    assert set(entries) == {"s", "k-found.rows", "k-found.words"}
    entry = entries["k-found.rows"]
    assert entry["key_properties"] == ["id"]
    assert entry["replication_method"] == "LOG_BASED"
    assert list(entry["schema"]["properties"]) == ["id", "name"]
    assert list(entries["k-found.words"]["schema"]["properties"]) == ["value"]
    run = reads.run(config, catalog={"streams": [{**entry, "stream": "s"}]})
    assert records(run) == [row(1, "a")]


def test_security_by_options_and_no_secret_in_errors(reads: TopicReads) -> None:
    topic = reads.broker.topic()
    reads.broker.send(topic, numbers(0, 1))

    def config(login: str, authority: str = reads.broker.authority) -> Any:
        options = {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.certificates": authority,
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": login,
        }
        connection = {"brokers": reads.broker.secured, "options": options}
        return reads.config(connection, topic=topic, **PLAIN)

    assert [r["n"] for r in records(reads.run(config(f"{LOGIN};")))] == [0]
    wrong = LOGIN.replace("Secret", "Wrong-Secret")
    with pytest.raises(SourceError, match="the login was rejected") as caught:
        reads.run(config(f"{wrong};"))
    assert "Wrong" not in str(caught.value)
    with pytest.raises(SourceError) as caught:
        reads.run(config(wrong))
    assert "Wrong" not in str(caught.value)
    with pytest.raises(SourceError, match="TLS was refused"):
        reads.run(config(f"{LOGIN};", reads.broker.other_authority))


def test_brokers_and_topics_that_are_not_there(
    reads: TopicReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match=r"stream 's': topic 'nope': the topic does not exist"):
        reads.run(reads.config(topic="nope", **PLAIN))
    monkeypatch.setattr(kafka_admin, "TIMEOUT_MS", 500)
    config = reads.config({"brokers": "127.0.0.1:1"}, topic="nope", **PLAIN)
    with pytest.raises(SourceError, match="the brokers do not answer"):
        reads.run(config)


def test_queries_tell_the_same_as_the_brokers(reads: TopicReads) -> None:
    """Spark Connect has nothing else."""
    topic = reads.broker.topic(2)
    reads.broker.send(topic, numbers(0, 4), at=1_000)
    reads.broker.send(topic, numbers(4, 6), at=5_000)
    reads.broker.expire(topic, {0: 2})
    (connection,) = reads.config(topic=topic).connections
    options = reader_options(connection)
    facts, _ = topic_facts(reads.spark, options, topic, "earliest")
    end = queried_ends(reads.spark, options, {"subscribe": topic})[topic]
    assert end == facts.end
    assert queried_starts(reads.spark, options, topic, end) == facts.first == {0: 2, 1: 0}
    assert queried_starts(reads.spark, options, topic, end, 2_000) == {0: 4, 1: 0}
    with pytest.raises(SourceError, match="the topic does not exist"):
        queried_ends(reads.spark, options, {"subscribe": "nope"})
    assert topic in queried_ends(reads.spark, options, {"subscribePattern": ".*"})
