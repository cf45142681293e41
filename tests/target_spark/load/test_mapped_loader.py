"""One batch of a stream becomes one of each of its outputs; the loader below is a stand-in."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from engines import threads
from target_fakes import FakeSpark

from shared.engine.engine import IN_PYTHON, SPARK_ABOVE, Engine
from shared.errors import DestinationError, RecordError, SettingsError
from target_spark.config import target_config
from target_spark.core.balance import Counts, Loaded
from target_spark.core.load_plans import Batch, LoadPlan, LoadResult, Part, Reject, StreamSchema
from target_spark.load.loader import Loader
from target_spark.load.mapped_loader import MappedLoader, _pruned
from target_spark.run_settings import TargetConfig

PROPERTIES = {
    "id": {"type": "integer"},
    "name": {"type": ["string", "null"]},
    "price": {"type": ["number", "null"]},
}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["id", "price"]}


class Below(Loader):
    """Stands for `Loader`; notes what it is asked for."""

    def __init__(self, config: TargetConfig, engine: Engine, **_: bool) -> None:
        self._config, self._engine = config, engine
        self.calls: list[tuple[str, str]] = []
        self.batches: list[Batch] = []
        self.fails: dict[tuple[str, str], Exception] = {}
        self.rejects: dict[str, tuple[Reject, ...]] = {}
        self.deleted: list[str] = []
        self.ignored: set[str] = set()
        self.overwritten: set[str] = set()

    def _note(self, what: str, stream: str) -> None:
        self.calls.append((what, stream))
        error = self.fails.pop((what, stream), None)
        if error is not None:
            raise error

    def plan(self, stream: StreamSchema) -> LoadPlan | None:
        if stream.stream in self.ignored:
            return None
        is_whole = stream.stream in self.overwritten
        return LoadPlan(is_whole, is_whole, recalls=stream.stream == "noted")

    def convert(self, batch: Batch) -> LoadResult:
        name = batch.stream.stream
        self.batches.append(batch)
        self._note("convert", name)
        rejects = self.rejects.get(name, ())
        urls = (f"rejects of {name}",) if rejects else ()
        return LoadResult((Part(f"part of {name}", 3, 10),), 3, rejects, len(rejects), urls)

    def commit(self, batch: Batch, results: Sequence[LoadResult]) -> dict[str, Loaded]:
        parts = [part.url for result in results for part in result.parts]
        assert parts == [f"part of {batch.stream.stream}"] * len(results)
        assert not any(result.reject_files for result in results)
        self._note("commit", batch.stream.stream)
        return {batch.stream.stream: Loaded(Counts(committed=3))}

    def abort(self, batch: Batch, results: Sequence[LoadResult]) -> None:
        self._note("abort", batch.stream.stream)

    def finish(self, stream: str, *, awaits_state: bool = False) -> dict[str, Loaded]:
        self._note("finish", stream)
        return {}

    def activate(self, stream: StreamSchema, version: int) -> None:
        self._note("activate", stream.stream)

    def check_keys(self, stream: StreamSchema) -> None:
        self._note("check_keys", stream.stream)

    def delete_missing(self, keys: Batch) -> int:
        self._note("delete_missing", keys.stream.stream)
        return 2

    def delete_rejects(self, results: Sequence[LoadResult]) -> None:
        self.deleted += [url for result in results for url in result.reject_files]


class OverBelow(MappedLoader, Below):
    """Maps in front of the stand-in."""


def loader(maps: Any, engine: Engine | None = None, **settings: Any) -> tuple[MappedLoader, Below]:
    config = target_config({"path": "out", "stream_maps": maps, **settings})
    mapped = OverBelow(config, engine or threads())
    return mapped, mapped


def batch(stream: str = "orders", serial: int = 0, schema: Any = SCHEMA) -> Batch:
    return Batch(StreamSchema(stream, schema, ("id",), serial), (), "token", 7)


SPLIT = {
    "orders": {"name": "name", "__else__": None, "id": "id"},
    "cheap": {"__source__": "orders", "price": None},
}


def test_each_output_has_a_batch_of_its_own() -> None:
    mapped, below = loader(SPLIT)
    result = mapped.convert(batch())
    assert below.calls == [("convert", "orders"), ("convert", "cheap")]
    assert [b.stream.key_properties for b in below.batches] == [("id",), ("id",)]
    assert {b.token for b in below.batches} == {"token"}
    assert [b.source for b in below.batches] == ["orders", "orders"]
    assert (result.rows, len(result.parts)) == (6, 2)
    assert set(below.batches[1].stream.schema["properties"]) == {"id", "name"}


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"name": "[id, name]"}, 1),
        ({"name": "name.title()"}, SPARK_ABOVE // IN_PYTHON // 2 + 1),
        ({"name": "name.upper()"}, SPARK_ABOVE // 2 + 1),
        ({"price": None}, SPARK_ABOVE // 2 + 1),
    ],
)
def test_spark_starts_early_for_maps_that_compute(rules: Any, expected: int) -> None:
    spark = FakeSpark()
    engine = Engine(spark)
    mapped, _ = loader({"orders": rules}, engine)
    mapped.plan(batch("others").stream)
    mapped.plan(batch().stream)
    engine.receive(expected - 1)
    assert spark.calls == (["start"] if expected == 1 else [])
    engine.receive(1)
    assert "start" in spark.calls


def test_only_what_outputs_need_is_parsed_and_only_the_first_tells() -> None:
    mapped, below = loader(SPLIT)
    mapped.convert(batch())
    makings = [b.making for b in below.batches]
    assert [b.reports_rejects for b in below.batches] == [True, False]
    assert [b.output for b in below.batches] == ["orders", "cheap"]
    assert makings[0] is not None
    assert list(makings[0].schema["properties"]) == ["id", "name"]
    assert makings[0].schema["required"] == ["id"]
    assert makings[0].names == ("id", "name", "price")


def test_an_output_without_a_table_may_be_ignored() -> None:
    mapped, below = loader(SPLIT)
    below.ignored = {"orders"}
    assert mapped.plan(batch().stream)
    mapped.convert(batch())
    [only] = below.batches
    assert only.stream.stream == "cheap"
    assert only.reports_rejects, "the first that is loaded"
    mapped, below = loader(SPLIT)
    below.ignored = {"orders", "cheap"}
    assert not mapped.plan(batch().stream)


def test_a_stream_without_a_map_goes_as_it_is() -> None:
    mapped, below = loader(SPLIT)
    mapped.convert(batch("others"))
    [only] = below.batches
    assert (only.making, only.stream.stream, only.stream.schema) == (None, "others", SCHEMA)
    assert (only.output, only.reports_rejects) == (None, True)


def test_only_the_first_of_unchanged_copies_tells_what_does_not_fit() -> None:
    mapped, below = loader({"copy": {"__source__": "orders"}})
    mapped.convert(batch())
    assert [(b.making, b.reports_rejects) for b in below.batches] == [(None, True), (None, False)]


def test_dead_letters_of_one_output_are_loaded_into_it_alone() -> None:
    mapped, below = loader(SPLIT)
    mapped.convert(batch())
    letters = replace(batch(serial=1).stream, are_letters="cheap")
    mapped.convert(replace(batch(), stream=letters))
    assert below.calls[2:] == [("convert", "cheap")]
    below.calls.clear()
    mapped.finish("orders")
    assert below.calls == [("finish", "orders"), ("finish", "cheap")]


def test_rejected_records_of_all_outputs_are_kept_until_the_last_commit() -> None:
    mapped, below = loader(SPLIT)
    below.rejects = {
        "orders": (Reject("f", 3, "a"),),
        "cheap": (Reject("f", 3, "b"), Reject("f", 5, "c")),
    }
    result = mapped.convert(batch())
    assert [reject.line for reject in result.rejects] == [3, 3, 5]
    assert result.rejected == 2, "a record counts once"
    assert result.reject_files == ("rejects of orders", "rejects of cheap")
    below.fails["commit", "cheap"] = DestinationError("busy")
    with pytest.raises(DestinationError):
        mapped.commit(batch(), [result])
    assert below.deleted == []
    mapped.commit(batch(), [result])
    assert below.calls[2:] == [("commit", "orders"), ("commit", "cheap"), ("commit", "cheap")]
    assert below.deleted == ["rejects of orders", "rejects of cheap"]


def test_an_abort_leaves_what_is_durable() -> None:
    mapped, below = loader(SPLIT)
    result = mapped.convert(batch())
    below.fails["commit", "cheap"] = DestinationError("gone")
    with pytest.raises(DestinationError):
        mapped.commit(batch(), [result])
    mapped.abort(batch(), [result])
    assert below.calls[-1] == ("abort", "cheap")
    assert ("abort", "orders") not in below.calls


def test_a_failed_conversion_takes_the_others_back() -> None:
    mapped, below = loader(SPLIT)
    below.fails["convert", "cheap"] = RecordError("no")
    with pytest.raises(RecordError):
        mapped.convert(batch())
    assert below.calls[-1] == ("abort", "orders")


def test_values_under_names_of_record_metadata_are_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mapped, _ = loader({"orders": {"x": "1"}})
    properties = {**PROPERTIES, "_sdc_batched_at": {"type": "string"}}
    for serial in (0, 1):
        mapped.plan(batch(serial=serial, schema={**SCHEMA, "properties": properties}).stream)
    (text,) = (text for text in caplog.messages if "record metadata" in text)
    assert text.startswith("stream 'orders': values of '_sdc_batched_at' are replaced: ")


def test_a_removed_stream_is_nothing_to_load(caplog: pytest.LogCaptureFixture) -> None:
    mapped, below = loader({"orders": None})
    caplog.set_level(logging.INFO)
    assert not mapped.plan(batch().stream)
    assert "stream 'orders' is not loaded" in caplog.text
    result = mapped.convert(batch())
    mapped.commit(batch(), [result])
    mapped.activate(batch().stream, 3)
    mapped.finish("orders")
    assert (result, below.calls) == (mapped.convert(batch()), [])


def test_methods_and_patterns_are_those_of_the_outputs_name() -> None:
    streams = {"cheap": {"load_method": "overwrite"}}
    mapped, below = loader(SPLIT, streams=streams)
    below.overwritten = {"cheap"}
    assert mapped.plan(batch().stream) == LoadPlan(overwrites=True, replaces=True)
    alone, below = loader({"orders": {"__alias__": "'noted'"}}, streams=streams)
    below.overwritten = {"cheap", "orders"}
    assert alone.plan(batch().stream) == LoadPlan(recalls=True)


def test_versions_and_ends_reach_every_output() -> None:
    mapped, below = loader(SPLIT)
    mapped.plan(batch().stream)
    mapped.activate(batch().stream, 3)
    mapped.finish("orders")
    assert below.calls == [
        ("activate", "orders"), ("activate", "cheap"), ("finish", "orders"), ("finish", "cheap"),
    ]  # fmt: skip


def test_keys_are_deleted_by_if_the_target_does_not_map_them() -> None:
    mapped, below = loader(SPLIT)
    with pytest.raises(SettingsError, match="map the stream in the tap"):
        mapped.check_keys(batch().stream)
    assert below.calls == []
    plain, below = loader({"others": {"x": "1"}})
    plain.check_keys(batch().stream)
    assert plain.delete_missing(batch()) == 2
    assert below.calls == [("check_keys", "orders"), ("delete_missing", "orders")]


def test_two_streams_under_one_name_are_refused() -> None:
    mapped, _ = loader({"a": {"__alias__": "'same'"}, "b": {"__alias__": "'same'"}})
    mapped.plan(batch("a").stream)
    with pytest.raises(SettingsError, match="have the name 'same'") as caught:
        mapped.plan(batch("b").stream)
    assert caught.value.exit_code == 2
    mapped.plan(batch("a", serial=1).stream)


def test_a_name_that_an_unmapped_stream_has_is_refused() -> None:
    mapped, _ = loader({"a": {"__alias__": "'b'"}})
    mapped.plan(batch("b").stream)
    with pytest.raises(SettingsError, match="have the name 'b'"):
        mapped.plan(batch("a").stream)


def test_a_new_schema_is_planned_anew_and_the_old_one_still_known() -> None:
    mapped, below = loader({"orders": {"price": None}})
    mapped.plan(batch().stream)
    more = {**SCHEMA, "properties": {**PROPERTIES, "new": {"type": "string"}}}
    mapped.plan(batch(serial=1, schema=more).stream)
    mapped.convert(batch())
    mapped.convert(batch(serial=1, schema=more))
    actual = [list(b.stream.schema["properties"]) for b in below.batches]
    assert actual == [["id", "name"], ["id", "name", "new"]]


def test_maps_that_do_not_fit_the_stream_are_refused_with_their_place() -> None:
    mapped, _ = loader({"orders": {"total": "prise"}})
    with pytest.raises(SettingsError, match="prise"):
        mapped.plan(batch().stream)


@pytest.mark.parametrize("wanted", [True, False])
def test_metadata_columns_cannot_be_made(wanted: bool) -> None:
    mapped, _ = loader({"orders": {"_sdc_sequence": "id"}}, add_record_metadata=wanted)
    if wanted:
        with pytest.raises(SettingsError, match="_sdc_sequence"):
            mapped.plan(batch().stream)
    else:
        assert mapped.plan(batch().stream)


class TestPruned:
    def test_keeps_what_is_read(self) -> None:
        actual = _pruned(SCHEMA, frozenset({"name"}), strict=True)
        assert list(actual["properties"]) == ["name"]
        assert actual["required"] == []

    def test_never_becomes_a_schema_of_anything(self) -> None:
        assert list(_pruned(SCHEMA, frozenset(), strict=True)["properties"]) == ["id"]

    @pytest.mark.parametrize(
        "rule",
        [
            {"additionalProperties": False},
            {"minProperties": 2},
            {"allOf": [{"required": ["price"]}]},
            {"if": {}, "then": {}},
        ],
    )
    def test_rules_over_the_whole_record_need_all_of_it(self, rule: dict[str, Any]) -> None:
        schema = {**SCHEMA, **rule}
        assert _pruned(schema, frozenset({"name"}), strict=True) == schema
        assert list(_pruned(schema, frozenset({"name"}), strict=False)["properties"]) == ["name"]

    @pytest.mark.parametrize(
        "word", [{"additionalProperties": True}, {"$schema": "x"}, {"x-own": 1}, {"title": "t"}]
    )
    def test_words_that_ask_nothing_of_the_whole(self, word: dict[str, Any]) -> None:
        actual = _pruned({**SCHEMA, **word}, frozenset({"name"}), strict=True)
        assert list(actual["properties"]) == ["name"]

    def test_all_is_read_where_an_output_takes_rows_as_they_are(self) -> None:
        assert _pruned(SCHEMA, None, strict=True) is SCHEMA

    def test_free_form_records_stay_so(self) -> None:
        assert _pruned({"type": "object"}, frozenset(), strict=True) == {"type": "object"}
