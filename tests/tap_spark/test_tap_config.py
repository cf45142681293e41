"""Settings of tap-spark: rules between fields and the typed result."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import InvalidSettingsError
from shared.settings.loading import environment_settings, normalize
from shared.spark.conf import SparkSettings
from tap_spark.config import PROGRAM, SETTINGS_SCHEMA, SpoolSettings, TapConfig, tap_config
from tap_spark.sources.formats import FILE_FORMATS
from tap_spark.stream_config import StreamConfig

CSV = {"name": "a", "format": "csv", "path": "a.csv"}
ROWS = {"name": "r", "format": "rows", "row_count": 5}
NEEDED: dict[str, dict[str, Any]] = {
    "xml": {"options": {"rowTag": "row"}},
    "fixed_width": {"columns": [{"name": "a", "length": 1}]},
}


def problems(*streams: Any, **top: Any) -> list[str]:
    with pytest.raises(InvalidSettingsError) as caught:
        tap_config({"streams": list(streams), **top})
    return list(caught.value.problems)


def one(**fields: Any) -> StreamConfig:
    return tap_config({"streams": [{**CSV, **fields}]}).streams[0]


class TestResult:
    def test_defaults(self) -> None:
        assert tap_config({"streams": [CSV]}) == TapConfig(
            streams=(StreamConfig(name="a", format="csv", path="a.csv"),)
        )

    def test_dataclass_defaults_are_those_of_the_schema(self) -> None:
        config = tap_config({"streams": [CSV]})
        assert config.spark == SparkSettings(app_name="tap-spark")
        assert config.spool == SpoolSettings(root=None, bytes=268435456)
        assert config.state_interval_seconds == 10.0

    def test_everything_given(self) -> None:
        config = tap_config(
            {
                "streams": [
                    {
                        **CSV,
                        "path": ["a/", "b/"],
                        "options": {"header": True, "sep": ";", "samplingRatio": 0.5},
                        "schema": "id INT",
                        "key_properties": ["id"],
                        "replication_key": "t",
                        "replication_method": "INCREMENTAL",
                        "sort_by_replication_key": True,
                    },
                    {**ROWS, "column_count": 150},
                ],
                "start_date": "2026-01-01",
                "spark": {
                    "master": "local[2]",
                    "app_name": "n",
                    "packages": ["g:a:1"],
                    "jars": ["x.jar"],
                    "conf": {"spark.a": True, "spark.b": 4, "spark.c": "x"},
                },
                "state_interval_seconds": 1,
                "spool": {"root": "/tmp/x", "bytes": 1048576},
            }
        )
        first, second = config.streams
        assert first.path == ("a/", "b/")
        assert first.options == {"header": "true", "sep": ";", "samplingRatio": "0.5"}
        assert first.key_properties == ("id",)
        assert (first.replication_key, first.sort_by_replication_key) == ("t", True)
        assert second.own == {"row_count": 5, "column_count": 150}
        assert config.spark.conf == {"spark.a": "true", "spark.b": "4", "spark.c": "x"}
        assert config.spark.packages == ("g:a:1",)
        assert config.spark.jars == ("x.jar",)
        assert config.spool == SpoolSettings("/tmp/x", 1048576)

    def test_paths(self) -> None:
        assert one().paths == ("a.csv",)
        assert one(path=["a", "b"]).paths == ("a", "b")
        assert StreamConfig(name="r", format="rows").paths == ()

    def test_columns_of_rows_have_a_default(self) -> None:
        assert tap_config({"streams": [ROWS]}).streams[0].own["column_count"] == 10
        assert one().own == {}

    def test_whole_floats_are_integers(self) -> None:
        stream = tap_config({"streams": [{**ROWS, "row_count": 5.0}]}).streams[0]
        assert isinstance(stream.own["row_count"], int)

    def test_remote(self) -> None:
        spark = tap_config({"streams": [CSV], "spark": {"remote": "sc://h"}}).spark
        assert spark.remote == "sc://h"

    def test_from_the_environment(self) -> None:
        variables = {
            "TAP_SPARK_STREAMS": '[{"name":"a","format":"csv","path":"a.csv"}]',
            "TAP_SPARK_SPARK__MASTER": "local[3]",
            "TAP_SPARK_SPARK__CONF__spark.ui.enabled": "false",
            "TAP_SPARK_STATE_INTERVAL_SECONDS": "2.5",
            "TAP_SPARK_SPOOL__BYTES": "2097152",
        }
        settings, bad = environment_settings(SETTINGS_SCHEMA, PROGRAM.env_prefix, variables)
        config = tap_config(settings)
        assert bad == []
        assert config.spark.master == "local[3]"
        assert config.spark.conf == {"spark.ui.enabled": "false"}
        assert config.state_interval_seconds == 2.5
        assert config.spool.bytes == 2097152

    def test_meltano_nests_dots_in_conf(self) -> None:
        settings = {"streams": [CSV], "spark": {"conf": {"spark": {"ui": {"enabled": False}}}}}
        config = tap_config(normalize(SETTINGS_SCHEMA, settings))
        assert config.spark.conf == {"spark.ui.enabled": "false"}


class TestRules:
    @pytest.mark.parametrize("kind", FILE_FORMATS)
    def test_file_formats_need_a_path(self, kind: str) -> None:
        assert problems({"name": "a", "format": kind, **NEEDED.get(kind, {})}) == [
            f"config['streams'][0]['path']: is required for the format {kind!r}"
        ]

    def test_rows_need_a_count(self) -> None:
        assert problems({"name": "a", "format": "rows"}) == [
            "config['streams'][0]['row_count']: is required for the format 'rows'"
        ]

    @pytest.mark.parametrize(
        ("stream", "field", "value"),
        [
            (ROWS, "path", "x"),
            (ROWS, "options", {"a": "b"}),
            (ROWS, "schema", "id INT"),
            (ROWS, "records_path", "x"),
            (CSV, "records_path", "x"),
            (CSV, "row_count", 1),
            (CSV, "column_count", 1),
            (ROWS, "read_unterminated_line", True),
            ({**CSV, "format": "json"}, "read_unterminated_line", True),
        ],
    )
    def test_fields_of_other_formats(
        self, stream: dict[str, Any], field: str, value: object
    ) -> None:
        [line] = problems({**stream, field: value})
        assert line == (
            f"config['streams'][0]['{field}']: does not apply to the format "
            f"{stream['format']!r}; remove it"
        )

    def test_records_path_of_json(self) -> None:
        assert one(format="json", records_path="features").own["records_path"] == "features"

    def test_full_table_with_a_key(self) -> None:
        [line] = problems({**CSV, "replication_method": "FULL_TABLE", "replication_key": "t"})
        assert "is not used by FULL_TABLE" in line

    @pytest.mark.parametrize("kind", FILE_FORMATS)
    def test_incremental_by_file_position(self, kind: str) -> None:
        needed = NEEDED.get(kind, {})
        stream = one(format=kind, replication_method="INCREMENTAL", **needed)
        assert (stream.replication_method, stream.replication_key) == ("INCREMENTAL", None)

    def test_incremental_rows_need_a_key(self) -> None:
        [line] = problems({**ROWS, "replication_method": "INCREMENTAL"})
        assert line.startswith("config['streams'][0]['replication_key']: is required")
        keyed = {**ROWS, "replication_method": "INCREMENTAL", "replication_key": "id"}
        assert tap_config({"streams": [keyed]}).streams[0].replication_key == "id"

    def test_sorting_needs_a_key(self) -> None:
        [line] = problems({**CSV, "sort_by_replication_key": True})
        assert line.endswith("needs a 'replication_key'")
        assert not one(sort_by_replication_key=False).sort_by_replication_key

    def test_an_end_date_needs_a_key(self) -> None:
        [line] = problems({**CSV, "end_date": "2026-01-01"})
        assert line.startswith("config['streams'][0]['end_date']: needs a 'replication_key'")
        assert one(end_date=5, replication_key="t").end_date == 5
        assert one(end_date="2026-01-01", replication_key="t").end_date == "2026-01-01"

    def test_keys_need_a_key(self) -> None:
        [line] = problems({**CSV, "deletes": "keys"})
        assert line.startswith("config['streams'][0]['deletes']: needs a 'replication_key'")
        [line] = problems({**CSV, "deletes_every": 3})
        assert line.endswith("needs 'deletes'")
        assert one(deletes="keys", replication_key="t", deletes_every=3).deletes_every == 3
        assert one(deletes_every=1).deletes is None, "Meltano gives defaults, too"

    def test_duplicate_names(self) -> None:
        assert problems(CSV, ROWS, CSV, CSV) == [
            "config['streams'][2]['name']: 'a' is already the name of config['streams'][0]",
            "config['streams'][3]['name']: 'a' is already the name of config['streams'][0]",
        ]

    @pytest.mark.parametrize(
        "text", ["2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00Z", "2026-01-01 00:00"]
    )
    def test_start_dates(self, text: str) -> None:
        assert tap_config({"streams": [CSV], "start_date": text}).start_date == text

    @pytest.mark.parametrize(
        "text", ["", "yesterday", "2026-13-01", "01/02/2026", "Z", "20260101", "2026-W01-1"]
    )
    def test_wrong_start_dates(self, text: str) -> None:
        [line] = problems(CSV, start_date=text)
        assert line.endswith("is not an ISO 8601 date or timestamp")

    def test_master_and_remote(self) -> None:
        [line] = problems(CSV, spark={"master": "x", "remote": "sc://h"})
        assert line.startswith("config['spark']: 'master' and 'remote' exclude each other")

    @pytest.mark.parametrize(
        "fields",
        [
            {"format": []},
            {"format": 3},
            {"format": 3, "replication_method": "INCREMENTAL"},
            {"path": 3},
            {"name": []},
        ],
    )
    def test_wrong_types_do_not_start_follow_up_problems(self, fields: dict[str, Any]) -> None:
        assert len(problems({**CSV, **fields})) == 1

    @pytest.mark.parametrize("streams", ["x", 3, {"a": 1}, ["x"], [3], [[]], [None]])
    def test_streams_of_any_shape(self, streams: object) -> None:
        with pytest.raises(InvalidSettingsError):
            tap_config({"streams": streams})

    def test_schema_and_rules_in_one_answer(self) -> None:
        actual = problems(
            {"name": "a", "format": "csv", "row_count": "x"},
            {"name": "a", "format": "rows", "surplus": 1},
            start_date="x",
        )
        assert sorted(line.split(": ")[0] for line in actual) == [
            "config['start_date']",
            "config['streams'][0]['path']",
            "config['streams'][0]['row_count']",
            "config['streams'][0]['row_count']",
            "config['streams'][1]['name']",
            "config['streams'][1]['row_count']",
            "config['streams'][1]['surplus']",
        ]

    @pytest.mark.parametrize("key", ["stream_map", "flattening_enable"])
    def test_near_misses_of_transforms_are_unknown(self, key: str) -> None:
        [line] = problems(CSV, **{key: {}})
        assert line.startswith(f"config['{key}']: unknown setting; ")

    def test_known_settings_are_listed_in_one_spelling(self) -> None:
        [line] = problems(CSV, zzzzzz=1)
        assert "'batch_config'" in line
        assert "batch.size" not in line and "failure_strategy" not in line

    def test_transforms_reach_the_typed_result(self) -> None:
        config = tap_config(
            {
                "streams": [CSV],
                "stream_maps": {"a": {"total": "price * 2", "b": None}},
                "flattening_enabled": True,
                "flattening_max_depth": 2,
            }
        )
        assert config.transforms.active
        assert config.transforms.flattening.active
        assert config.transforms.flattening.max_depth == 2
        assert not tap_config({"streams": [CSV]}).transforms.active

    def test_free_form_blocks_take_any_key(self) -> None:
        options = {"anyThing": "x", "a.b.c": 1}
        (stream,) = tap_config(
            {"streams": [{"name": "a", "format": "own.Source", "options": options}]}
        ).streams
        assert stream.options == {"anyThing": "x", "a.b.c": "1"}


def test_every_declared_setting_has_a_description() -> None:
    from shared.settings.about import settings_of

    assert [item.name for item in settings_of(PROGRAM) if not item.schema.get("description")] == []
