"""Plans from settings, catalog and state."""

from __future__ import annotations

import copy

import pytest
from pyspark.sql import types as t

from shared.errors import SettingsError, SourceError
from tap_spark.config import TapConfig
from tap_spark.plan.catalog import build_entry
from tap_spark.plan.replication import plan_streams
from tap_spark.state.stream_plans import Method, Resume
from tap_spark.stream_config import StreamConfig

STRUCT = t.StructType(
    [
        t.StructField("z", t.LongType()),
        t.StructField("at", t.TimestampType()),
        t.StructField("name", t.StringType()),
        t.StructField("tags", t.ArrayType(t.StringType())),
    ]
)
NOW = 1_700_000_000_000


def plan(stream=None, *, state=None, edit=None, start_date=None, **kwargs):
    stream = stream or StreamConfig(name="s", format="csv", path="x", **kwargs)
    entry = build_entry(
        stream.name,
        STRUCT,
        key_properties=stream.key_properties,
        replication_key=stream.replication_key,
        replication_method=stream.replication_method,
    )
    if edit:
        edit(entry, entry["metadata"][0]["metadata"])
    config = TapConfig(streams=(stream,), start_date=start_date)
    return plan_streams(config, {"streams": [entry]}, state, NOW)


def test_a_full_table_has_a_version_and_no_key():
    (created,) = plan()
    assert created.method is Method.FULL_TABLE
    assert created.resume is Resume.NOTHING
    assert created.version == NOW
    assert created.replication_key is None
    assert created.columns == ("z", "at", "name", "tags")


def test_a_method_that_the_metadata_contradict_is_told(caplog):
    def edit(entry, root):
        entry["replication_method"] = "INCREMENTAL"

    (created,) = plan(edit=edit)
    assert created.method is Method.FULL_TABLE
    assert "set 'replication-method' in the metadata" in caplog.text


def test_a_choice_in_the_metadata_is_told_if_it_has_no_effect(caplog):
    words = {"replication-key": "z", "view-key-properties": ["name"]}
    (created,) = plan(edit=lambda _, root: root.update(words))
    assert (created.method, created.key_properties) == (Method.FULL_TABLE, ("name",))
    assert "the catalog's replication key 'z' has no effect with FULL_TABLE" in caplog.text
    caplog.clear()
    words["replication-method"] = "INCREMENTAL"
    (created,) = plan(edit=lambda _, root: root.update(words))
    assert (created.method, created.replication_key) == (Method.INCREMENTAL, "z")
    plan(replication_key="z", replication_method="FULL_TABLE")
    assert caplog.text == ""


def test_failures_of_streams_can_be_reported():
    streams = [StreamConfig(name=name, format="csv", path="x") for name in ("a", "b")]
    entries = [build_entry(name, STRUCT) for name in ("a", "c", "b")]
    entries[0]["key_properties"] = ["no"]
    actual = []
    config, catalog = TapConfig(streams=tuple(streams)), {"streams": entries}
    plans = plan_streams(config, catalog, None, NOW, lambda *failure: actual.append(failure))
    assert [plan.stream for plan in plans] == ["b"]
    assert [(stream, error.where.stream) for stream, error in actual] == [("a", "a"), ("c", "c")]


def test_incremental_by_key():
    (created,) = plan(replication_key="at", key_properties=("z",))
    assert (created.method, created.resume) == (Method.INCREMENTAL, Resume.REPLICATION_KEY)
    assert (created.replication_key, created.key_type) == ("at", "timestamp")
    assert (created.key_properties, created.version, created.start_value) == (("z",), None, None)


def test_incremental_without_key_resumes_files():
    (created,) = plan(replication_method="INCREMENTAL")
    assert created.resume is Resume.FILE_POSITION


def test_incremental_rows_need_a_key():
    stream = StreamConfig(name="s", format="rows", replication_method="INCREMENTAL")
    with pytest.raises(SourceError, match="needs a replication key"):
        plan(stream)


@pytest.mark.parametrize(
    "edit",
    [
        lambda entry, root: root.update({"replication-method": "INCREMENTAL"}),
        lambda entry, root: root.update({"forced-replication-method": "INCREMENTAL"}),
        lambda entry, root: (
            root.pop("replication-method"),
            entry.update(replication_method="INCREMENTAL"),
        ),
    ],
)
def test_the_catalog_decides_the_method(edit):
    def both(entry, root):
        edit(entry, root)
        root["replication-key"] = "z"

    (created,) = plan(edit=both)
    assert (created.method, created.replication_key) == (Method.INCREMENTAL, "z")


def test_the_key_may_come_from_the_stream_s_own_field():
    def edit(entry, root):
        root["replication-method"] = "INCREMENTAL"
        entry["replication_key"] = "z"

    (created,) = plan(edit=edit)
    assert created.replication_key == "z"


@pytest.mark.parametrize(("method", "text"), [("LOG_BASED", "no log"), ("x", "unknown")])
def test_other_methods_are_refused(method, text):
    with pytest.raises(SourceError, match=text):
        plan(edit=lambda entry, root: root.update({"replication-method": method}))


def test_deselected_streams_are_skipped_even_if_unknown():
    def edit(entry, root):
        entry["tap_stream_id"] = "unknown"
        root["selected"] = False

    assert plan(edit=edit) == ()


def test_a_selected_stream_without_settings_is_an_error():
    with pytest.raises(SourceError, match=r"stream 'gone'.*known: s"):
        plan(edit=lambda entry, root: entry.update(tap_stream_id="gone"))


def test_unlisted_streams_are_skipped():
    config = TapConfig(streams=(StreamConfig(name="s", format="csv", path="x"),))
    assert plan_streams(config, {"streams": []}, None, NOW) == ()


def test_the_order_of_columns_is_the_source_s():
    def edit(entry, root):
        entry["schema"]["properties"] = dict(sorted(entry["schema"]["properties"].items()))

    (created,) = plan(edit=edit)
    assert created.columns == ("z", "at", "name", "tags")


def test_deselected_columns_are_not_planned():
    def edit(entry, root):
        entry["metadata"][3]["metadata"]["selected"] = False

    (created,) = plan(edit=edit)
    assert created.columns == ("z", "at", "tags")
    assert "name" not in created.schema["properties"]


def test_a_selected_column_without_any_selected_field_is_told(caplog):
    def edit(entry, root):
        entry["schema"]["properties"]["place"] = {"type": "object", "properties": {"lat": {}}}
        path = ["properties", "place"]
        for breadcrumb, chosen in ((path, True), ([*path, "properties", "lat"], False)):
            entry["metadata"].append({"breadcrumb": breadcrumb, "metadata": {"selected": chosen}})

    (created,) = plan(edit=edit)
    assert "place" not in created.columns
    assert "column 'place' is left out, as none of its fields is selected" in caplog.text


def test_a_stream_may_be_renamed_in_the_catalog():
    (created,) = plan(edit=lambda entry, root: entry.update(stream="alias"))
    assert (created.stream, created.tap_stream_id) == ("alias", "s")


def state_of(**mark):
    return {"bookmarks": {"s": mark}}


@pytest.mark.parametrize(
    ("key", "mark", "start_date", "expected"),
    [
        ("z", {}, None, None),
        ("z", {}, "2024-01-01", None),
        ("name", {}, "2024-01-01", "2024-01-01"),
        ("at", {}, "2024-01-01", "2024-01-01T00:00:00.000000+00:00"),
        ("at", {}, "2024-01-01T00:00:00+01:00", "2023-12-31T23:00:00.000000+00:00"),
        (
            "at",
            {"replication_key_value": "+20000-01-01"},
            None,
            "+20000-01-01T00:00:00.000000+00:00",
        ),
        # Infinite in a database, where another value may follow it.
        ("at", {"replication_key_value": "9999-12-31T23:59:59.999999Z"}, None, None),
        (
            "at",
            {"replication_key_value": "9999-12-31T00:00:00Z"},
            "-4712-01-01",
            "-4712-01-01T00:00:00.000000+00:00",
        ),
        ("z", {"replication_key": "z", "replication_key_value": 5}, None, 5),
        ("z", {"replication_key_value": "5"}, None, 5),
        (
            "at",
            {"replication_key_value": "2025-01-01T00:00:00Z"},
            "2024-01-01",
            "2025-01-01T00:00:00.000000+00:00",
        ),
        ("z", {"starting_replication_value": 3, "progress_markers": {"x": 9}}, None, 3),
    ],
)
def test_start_value(key, mark, start_date, expected):
    (created,) = plan(replication_key=key, state=state_of(**mark), start_date=start_date)
    assert created.start_value == expected
    assert created.bookmark == mark


@pytest.mark.parametrize(
    ("key", "end_date", "expected"),
    [
        ("at", "2024-01-01T00:00:00+01:00", "2023-12-31T23:00:00.000000+00:00"),
        ("z", 5, 5),
        ("z", "5", 5),
        ("name", "m", "m"),
    ],
)
def test_end_value(key, end_date, expected):
    (created,) = plan(replication_key=key, end_date=end_date)
    assert (created.end_value, created.start_value, created.null_keys) == (expected, None, True)


@pytest.mark.parametrize(
    ("settings", "edit", "text"),
    [
        ({"replication_key": "z"}, None, "setting 'end_date': does not fit .*, which is long"),
        ({"replication_key": "at"}, None, "is timestamp.*write dates and timestamps as ISO"),
        (
            {"replication_key": "z"},
            lambda entry, root: root.update({"replication-method": "FULL_TABLE"}),
            "setting 'end_date': needs INCREMENTAL",
        ),
    ],
)
def test_end_dates_that_do_not_fit(settings, edit, text):
    with pytest.raises(SettingsError, match=text):
        plan(end_date="soon", edit=edit, **settings)


@pytest.mark.parametrize(
    ("every", "mark", "runs", "is_due"),
    [
        (1, {}, 1, False),
        (1, {"replication_key_value": 5}, 1, True),
        (1, {"runs_since_keys": 0}, 1, True),
        (3, {"runs_since_keys": 1}, 2, False),
        (3, {"runs_since_keys": 2}, 3, True),
        (3, {"runs_since_keys": 7}, 8, True),
        (3, {"runs_since_keys": "x"}, 1, False),
    ],
)
def test_the_keys_of_all_rows_are_due(every, mark, runs, is_due):
    supplied = {"replication_key": "z", "key_properties": ("name",), "deletes_every": every}
    (created,) = plan(deletes="keys", state=state_of(**mark), **supplied)
    assert (created.runs_since_keys, created.sends_keys) == (runs, is_due)
    (created,) = plan(state=state_of(**mark), **supplied)
    assert (created.runs_since_keys, created.sends_keys) == (None, False)


def test_a_catalog_chooses_keys_for_tables_of_a_connection():
    supplied = {"replication_key": "z", "key_properties": ("name",), "state": state_of(x=1)}

    def chosen(**words):
        (created,) = plan(edit=lambda _, root: root.update(words), **supplied)
        return created.runs_since_keys, created.sends_keys

    assert chosen(**{"deletes": "keys", "deletes-every": 2}) == (1, False)
    assert chosen(deletes="keys") == (1, True)
    for words in ({"deletes": True}, {"deletes": "keys", "deletes-every": 0}):
        with pytest.raises(SourceError, match="'deletes-every' is invalid"):
            chosen(**words)


@pytest.mark.parametrize(
    ("settings", "edit", "text"),
    [
        ({"replication_key": "z"}, None, "needs key properties"),
        (
            {"replication_key": "z", "key_properties": ("z",)},
            lambda entry, root: root.update({"replication-method": "FULL_TABLE"}),
            "needs INCREMENTAL with a replication key",
        ),
    ],
)
def test_streams_whose_keys_are_not_sent(settings, edit, text):
    with pytest.raises(SettingsError, match=f"stream 's', setting 'deletes': {text}"):
        plan(deletes="keys", edit=edit, **settings)


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (
            {"replication_key": "at", "replication_key_value": 1},
            "has replication key 'at', not 'z'",
        ),
        ({"replication_key_value": "many"}, "does not fit replication key 'z' of type long"),
        ({"z": 5}, "the state's bookmark has 'z', but no 'replication_key_value'"),
        ({"partitions": [{"replication_key_value": 5}]}, "has 'partitions', but no"),
    ],
)
def test_a_bookmark_that_does_not_fit_is_an_error(mark, text):
    with pytest.raises(SourceError, match="stream 's'") as caught:
        plan(replication_key="z", state=state_of(**mark))
    assert text in str(caught.value)


def test_a_key_that_is_deselected():
    def deselect(entry, root):
        root.update({"replication-method": "INCREMENTAL", "replication-key": "z"})
        for item in entry["metadata"]:
            if item["breadcrumb"] == ["properties", "z"]:
                item["metadata"] |= {"inclusion": "available", "selected": False}

    with pytest.raises(SourceError, match="replication key 'z' is not selected in the catalog"):
        plan(edit=deselect)


def test_a_key_in_the_catalog_must_be_a_column():
    with pytest.raises(SourceError, match="'nope' is not a column"):
        plan(
            edit=lambda e, root: root.update(
                {"replication-method": "INCREMENTAL", "replication-key": "nope"}
            )
        )
    with pytest.raises(SourceError, match="'tags' is not a number"):
        plan(
            edit=lambda e, root: root.update(
                {"replication-method": "INCREMENTAL", "replication-key": "tags"}
            )
        )


def test_a_foreign_catalog_without_our_schema_gives_key_types_from_json_schema():
    def edit(entry, root):
        root.pop("spark-schema")
        root.update({"replication-method": "INCREMENTAL", "replication-key": "at"})

    (created,) = plan(edit=edit)
    assert (created.key_type, created.source_schema) == ("timestamp", None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"fields": [{"name": "z"}]}', '{"fields": [1]}'])
def test_a_damaged_schema_is_an_error(text):
    with pytest.raises(SourceError, match=r"stream 's'.*'spark-schema' is invalid"):
        plan(edit=lambda entry, root: root.update({"spark-schema": text}))


def test_every_wrong_stream_is_named():
    streams = tuple(StreamConfig(name=n, format="csv", path="x") for n in "ab")
    entries = [build_entry(name, STRUCT) for name in "ab"]
    for entry in entries:
        entry["metadata"][0]["metadata"]["replication-method"] = "LOG_BASED"
    with pytest.raises(SourceError, match=r"stream 'a'.*stream 'b'"):
        plan_streams(TapConfig(streams=streams), {"streams": entries}, None, NOW)


def test_planning_changes_neither_catalog_nor_state():
    catalog = {"streams": [build_entry("s", STRUCT, replication_key="z")]}
    state = state_of(replication_key="z", replication_key_value=4)
    before = copy.deepcopy((catalog, state))
    config = TapConfig(streams=(StreamConfig(name="s", format="csv", path="x"),))
    plan_streams(config, catalog, state, NOW)
    assert (catalog, state) == before
