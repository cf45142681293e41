"""Options of Spark's readers: known names, near misses, and values of the wrong form."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import SettingsError
from tap_spark.config import TapConfig, tap_config
from tap_spark.sources.formats import FILE_FORMATS, LOG_FORMATS, SOURCES, FixedColumn, source_format
from tap_spark.sources.source_declaration import option_problems


def problems(kind: str, **options: object) -> dict[str, str]:
    form = source_format(kind)
    assert form is not None
    return dict(option_problems(kind, form.options, options))


def config(**stream: Any) -> TapConfig:
    return tap_config({"streams": [{"name": "s", **stream}]})


def refused(**stream: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        config(**stream)
    return str(caught.value)


def test_every_format_with_a_reader_of_spark_s_has_its_options() -> None:
    existing = {form.name: form.options for form in SOURCES.values() if form.options is not None}
    assert set(existing) == {*FILE_FORMATS, *LOG_FORMATS, "jdbc"}
    for options in existing.values():
        names = [option.name.lower() for option in options]
        assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("csv", {"HEADER": True, "sep": ";", "maxColumns": 5, "mode": "failfast"}),
        ("csv", {"header": "TRUE", "samplingRatio": 0.5, "maxCharsPerColumn": "-1"}),
        ("json", {"multiLine": "false", "samplingRatio": 1, "maxColumns.x": "y"}),
        ("parquet", {"mergeSchema": False, "fs.s3a.endpoint": "http://x", "basePath": "/x"}),
        ("xml", {"rowTag": "a", "attributePrefix": ""}),
        ("iceberg", {"snapshot-id": 2**62, "branch": "b"}),
        ("delta", {"versionAsOf": 3}),
        ("avro", {"datetimeRebaseMode": "legacy", "recursiveFieldMaxDepth": 3.0}),
        ("table", {"what": "ever"}),
        ("my.own.Source", {"what": "ever"}),
    ],
)
def test_good_options(kind: str, options: dict[str, object]) -> None:
    assert problems(kind, **options) == {}


@pytest.mark.parametrize(
    ("kind", "name", "value", "text"),
    [
        (
            "csv",
            "heder",
            True,
            "is not an option for reading the format 'csv'; did you mean 'header'?",
        ),
        ("csv", "zzz", 1, "is not an option for reading the format 'csv'"),
        (
            "csv",
            "quoteAll",
            True,
            "is not an option for reading the format 'csv'; did you mean 'quote'?",
        ),
        ("parquet", "header", True, "is not an option for reading the format 'parquet'"),
        ("csv", "header", "yes", "must be true or false"),
        ("csv", "header", 1, "must be true or false"),
        ("csv", "maxColumns", "many", "must be an integer"),
        ("csv", "maxColumns", 1.5, "must be an integer"),
        ("json", "samplingRatio", "half", "must be a number"),
        ("json", "mode", "STRICT", "must be one of PERMISSIVE, DROPMALFORMED, FAILFAST"),
        ("fixed_width", "mode", "DROPMALFORMED", "must be one of PERMISSIVE, FAILFAST"),
        ("iceberg", "snapshotid", 1, "did you mean 'snapshot-id'?"),
    ],
)
def test_bad_options(kind: str, name: str, value: object, text: str) -> None:
    actual = problems(kind, **{name: value})
    assert list(actual) == [name]
    assert actual[name].endswith(text)


def test_an_option_given_twice() -> None:
    actual = problems("csv", header=True, Header=False)
    assert actual == {"Header": "is the same option as 'header'; give one of them"}


def test_the_settings_name_every_problem() -> None:
    text = refused(format="csv", path="x", options={"heder": True, "multiLine": "perhaps"})
    assert "heder" in text
    assert "did you mean 'header'?" in text
    assert "multiLine" in text
    assert "must be true or false" in text


def test_values_are_not_shown() -> None:
    text = refused(format="csv", path="x", options={"secret": "hush", "header": "hush"})
    assert "hush" not in text


@pytest.mark.parametrize("name", ["pathGlobFilter", "modifiedafter", "recursiveFileLookup"])
def test_options_that_choose_files(name: str) -> None:
    options = {name: "true"}
    stream: dict[str, Any] = {"format": "parquet", "path": "x", "options": options}
    config(**stream)
    config(**stream, replication_method="INCREMENTAL", replication_key="id")
    assert "are resumed by file and line" in refused(**stream, replication_method="INCREMENTAL")


def test_xml_needs_a_row_tag() -> None:
    assert "'rowTag' is required" in refused(format="xml", path="x")
    assert config(format="xml", path="x", options={"ROWTAG": "a"}).streams


def test_columns_of_fixed_width() -> None:
    columns = [{"name": "a", "length": 3}, {"name": "b", "start": 10, "length": 2}]
    (stream,) = config(
        format="fixed_width", path="x", columns=[*columns, {"name": "c", "length": 1}]
    ).streams
    assert stream.own["columns"] == (
        FixedColumn("a", 1, 3),
        FixedColumn("b", 10, 2),
        FixedColumn("c", 12, 1),
    )
    assert "is required for the format 'fixed_width'" in refused(format="fixed_width", path="x")
    twice = [{"name": "a", "length": 3}, {"name": "A", "length": 3}]
    assert "'A' is the name of several columns" in refused(
        format="fixed_width", path="x", columns=twice
    )
    assert "does not apply to the format 'csv'" in refused(format="csv", path="x", columns=columns)
    nothing = [{"name": "a", "length": 0}]
    assert "length" in refused(format="fixed_width", path="x", columns=nothing)


def test_names_of_tables() -> None:
    assert config(format="table", table='a."b.c"').streams
    assert "'a..b' is not a table name" in refused(format="table", table="a..b")


def test_python_sources_take_one_path() -> None:
    assert config(format="my.Source", path="x", options={"any": 1}, schema="a INT").streams
    assert "must be one path" in refused(format="my.Source", path=["x", "y"])
