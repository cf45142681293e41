"""What leaves of each stream of the tap, planned before anything is read; no Spark."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from pyspark.sql import types as T  # noqa: N812

from shared.errors import RecordError, SettingsError
from shared.formats.json_schema import spark_to_json_schema
from shared.maps.map_settings import TransformSettings
from tap_spark.config import tap_config
from tap_spark.plan.replication import DELETED_AT
from tap_spark.send.stream_outputs import BEGIN, END, Outputs, map_error, outputs_of
from tap_spark.state.stream_plans import Method, Resume, StreamPlan
from tap_spark.stream_config import StreamConfig

STRUCT = T.StructType(
    [
        T.StructField("id", T.IntegerType()),
        T.StructField("name", T.VarcharType(10)),
        T.StructField("price", T.DoubleType()),
        T.StructField("at", T.TimestampType()),
        T.StructField("deep", T.StructType([T.StructField("a", T.DateType())])),
    ]
)


def plan(stream: str = "orders", **more: Any) -> StreamPlan:
    return StreamPlan(
        stream=stream,
        tap_stream_id=stream,
        config=StreamConfig(name=stream, format="rows"),
        schema=spark_to_json_schema(STRUCT),
        columns=tuple(STRUCT.names),
        **{"key_properties": ("id",), "source_schema": STRUCT.json(), **more},
    )


def no_spark() -> Any:
    raise AssertionError


def settings(**supplied: Any) -> TransformSettings:
    streams = [{"name": "s", "format": "csv", "path": "x"}]
    return tap_config({"streams": streams, **supplied}).transforms


def planned(maps: Any, *plans: StreamPlan, **more: Any) -> tuple[Outputs, tuple[StreamPlan, ...]]:
    return outputs_of(settings(stream_maps=maps, **more), plans or (plan(),), no_spark)


def test_without_maps_every_stream_is_as_it_is() -> None:
    one = plan()
    outputs, left = outputs_of(settings(), [one], no_spark)
    assert left == (one,)
    [output] = outputs.of(one)
    assert (output.plan, output.transform) == (one, None)
    assert outputs.read_plan(one) is one


def test_names_schemas_and_keys_are_those_of_the_outputs() -> None:
    maps = {
        "orders": {"__alias__": "'sales'", "label": "name", "__else__": None, "id": "id"},
        "prices": {"__source__": "orders", "__key_properties__": ["price"], "name": None},
    }
    outputs, _ = planned(maps)
    first, second = outputs.of(plan())
    assert (first.plan.stream, second.plan.stream) == ("sales", "prices")
    assert set(first.plan.schema["properties"]) == {"id", "label"}
    assert first.plan.key_properties == ("id",)
    assert second.plan.key_properties == ("price",)
    assert first.plan.tap_stream_id == second.plan.tap_stream_id == "orders"
    existing = plan().schema["properties"]
    assert second.plan.schema["properties"]["at"] == existing["at"]


def test_only_what_outputs_need_is_read() -> None:
    maps = {
        "orders": {"label": "name", "__else__": None, "id": "id"},
        "days": {"__source__": "orders", "day": "deep", "__else__": None, "id": "id"},
    }
    outputs, _ = planned(maps)
    read_plan = outputs.read_plan(plan())
    assert read_plan.columns == ("id", "name", "deep")
    assert set(read_plan.schema["properties"]) == {"id", "name", "deep"}


def test_the_replication_key_and_keys_are_always_read() -> None:
    maps = {"orders": {"label": "name", "__else__": None, "__key_properties__": []}}
    followed = plan(method=Method.INCREMENTAL, resume=Resume.REPLICATION_KEY, replication_key="at")
    outputs, _ = planned(maps, followed)
    assert outputs.read_plan(followed).columns == ("id", "name", "at")


def test_at_least_one_column_is_read() -> None:
    maps = {"orders": {"one": "1", "__else__": None, "__key_properties__": []}}
    keyless = plan(key_properties=())
    outputs, _ = planned(maps, keyless)
    assert outputs.read_plan(keyless).columns == ("id",)


def test_everything_is_read_where_a_copy_goes_as_it_is() -> None:
    outputs, _ = planned({"orders": {}, "copy": {"__source__": "orders", "name": None}})
    read_plan = outputs.read_plan(plan())
    assert read_plan.columns == plan().columns


def test_deletions_of_logs_pass_by_the_maps() -> None:
    logged = plan(method=Method.LOG_BASED, resume=Resume.LOG_POSITION)
    deleted = {"type": ["string", "null"], "format": "date-time"}
    properties = {**logged.schema["properties"], DELETED_AT: deleted}
    logged = plan(
        method=Method.LOG_BASED,
        resume=Resume.LOG_POSITION,
    )
    object.__setattr__(logged, "schema", {**logged.schema, "properties": properties})
    outputs, _ = planned({"orders": {"name": "name", "__else__": None, "id": "id"}}, logged)
    [output] = outputs.of(logged)
    assert list(output.plan.schema["properties"])[-1] == DELETED_AT
    assert output.transform is not None
    assert DELETED_AT not in output.transform.struct().names
    assert set(outputs.read_plan(logged).schema["properties"]) == {"id", "name", DELETED_AT}


def test_a_removed_stream_is_not_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    _, left = planned({"orders": None}, plan(), plan("kept"))
    assert [kept.stream for kept in left] == ["kept"]
    assert "stream 'orders': not reading it, as stream_maps removes it" in caplog.text


def test_copies_of_a_removed_stream_are_read() -> None:
    outputs, left = planned({"orders": None, "copy": {"__source__": "orders"}})
    assert [kept.stream for kept in left] == ["orders"]
    assert [output.plan.stream for output in outputs.of(plan())] == ["copy"]


def test_two_streams_under_one_name_are_refused() -> None:
    maps = {"a": {"__alias__": "'same'"}, "b": {"__alias__": "'same'"}}
    with pytest.raises(SettingsError, match="'same'"):
        planned(maps, plan("a"), plan("b"))


def test_the_problems_of_all_streams_are_reported_at_once() -> None:
    maps = {"a": {"total": "prise", "x": "nam"}, "b": {"y": "idd"}}
    with pytest.raises(SettingsError) as caught:
        planned(maps, plan("a"), plan("b"))
    text = str(caught.value)
    assert all(name in text for name in ("prise", "nam", "idd"))
    assert caught.value.exit_code == 2


def test_a_plan_made_again_has_its_new_bookmark_and_the_old_names() -> None:
    outputs, _ = planned({"orders": {"__alias__": "'sales'", "name": None}})
    again = plan(version=9, bookmark={"x": 1})
    [output] = outputs.of(again)
    assert (output.plan.stream, output.plan.version, output.plan.bookmark) == (
        "sales", 9, {"x": 1},
    )  # fmt: skip


def test_columns_in_the_order_of_the_source_without_its_schema() -> None:
    blind = plan(source_schema=None)
    outputs, _ = planned({"orders": {"name": None}}, blind)
    [output] = outputs.of(blind)
    assert output.transform is not None
    assert output.transform.struct().names == ["id", "price", "at", "deep"]


def test_flattening_is_planned_too() -> None:
    outputs, _ = planned({}, flattening_enabled=True, flattening_max_depth=1)
    [output] = outputs.of(plan())
    assert "deep__a" in output.plan.schema["properties"]


class TestMapErrors:
    def test_a_marked_failure_is_a_record_error(self) -> None:
        reported = {"stream": "sales", "reason": "property 'x': TypeError: no [x] {y}"}
        text = f"[USER_RAISED_EXCEPTION] {BEGIN}{json.dumps(reported)}{END} SQLSTATE: P0001"
        error = map_error(RuntimeError(text))
        assert isinstance(error, RecordError)
        assert str(error).startswith("stream 'sales', setting 'stream_maps': property 'x': TypeE")
        assert error.exit_code == 5

    def test_a_damaged_mark_is_told_as_it_is(self) -> None:
        error = map_error(RuntimeError(f"{BEGIN}cut{END}"))
        assert error is not None
        assert "cut" in str(error)

    def test_other_failures_are_none(self) -> None:
        assert map_error(RuntimeError("[X] it broke")) is None
