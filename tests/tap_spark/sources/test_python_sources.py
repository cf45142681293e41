"""Spark data sources written in Python, read through plans as a run does."""

from __future__ import annotations

import sys
import textwrap

import pytest
from tap_runs import failure, read_all, rows, stream, types

from shared.errors import SettingsError, SourceError
from shared.spark.jvm import with_same_path
from tap_spark import cli
from tap_spark.sources.source import source_for

pytestmark = pytest.mark.spark

SOURCE = """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from {package} import pages

    class Numbers(DataSource):
        @classmethod
        def name(cls):
            return "csv"

        def schema(self):
            if self.options.get("fail") == "schema":
                raise RuntimeError("no schema\\ntoday")
            return "id BIGINT NOT NULL, told STRING, `an other` STRUCT<a: INT, b: INT>"

        def reader(self, schema):
            return Reader(dict(self.options))

    class Reader(DataSourceReader):
        def __init__(self, options):
            self.options, self.pushed = options, []

        def partitions(self):
            if self.options.get("fail") == "partitions":
                raise RuntimeError("no partitions today")
            return [InputPartition(page) for page in range(3)]

        def read(self, partition):
            if self.options.get("fail") == "read":
                pages.fail(partition.value)
            told = ", ".join(f"{{k}}={{v}}" for k, v in sorted(self.options.items()))
            yield (partition.value, told, (1, 2))

    class Pushed(Numbers):
        def reader(self, schema):
            return PushedReader(dict(self.options))

    class PushedReader(Reader):
        def pushFilters(self, filters):
            self.options["pushed"] = repr(filters)
            return filters

    class NoSource:
        pass
"""
PAGES = """
    def fail(page):
        raise ValueError(f"page {page} is bad")
"""


@pytest.fixture
def package(tmp_path, monkeypatch, request):
    """A package in the working directory, of which executors know nothing."""
    name = f"own_{abs(hash(request.node.nodeid))}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "source.py").write_text(textwrap.dedent(SOURCE.format(package=name)))
    (folder / "pages.py").write_text(textwrap.dedent(PAGES))
    (folder / "broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return f"{name}.source"


def test_a_class_in_the_working_directory(spark, package):
    config = stream(f"{package}.Numbers", "some/path", options={"Key": "v"})
    assert types(spark, config)["id"] == "long"
    actual = sorted(rows(spark, config), key=lambda row: row["id"])
    assert [row["id"] for row in actual] == [0, 1, 2]
    assert actual[0]["told"] == "key=v, path=some/path"
    assert actual[0]["an other"] == {"a": 1, "b": 2}
    assert rows(spark, config, deselect=["told", ("an other", "a")])[0] == {
        "id": 0,
        "an other": {"b": 2},
    }


def test_workers_of_a_java_that_starts_first_see_the_working_directory(package):
    assert "PYTHONSAFEPATH" in with_same_path({})
    cli._config((), {"streams": [{"name": "s", "format": f"{package}.Numbers"}]})
    assert "PYTHONSAFEPATH" not in with_same_path({})


def incremental(spark, package: str, name: str, **settings) -> list[dict]:
    config = stream(f"{package}.{name}", replication_key="id", **settings)
    state = {"bookmarks": {"s": {"replication_key": "id", "replication_key_value": 1}}}
    actual, _ = read_all(spark, config, state=state)
    return sorted(actual, key=lambda row: row["id"])


def test_the_start_value_is_passed_and_applied(spark, package):
    actual = incremental(spark, package, "Numbers")
    assert [row["id"] for row in actual] == [1, 2]
    assert actual[0]["told"] == "singer_replication_key=id, singer_start_value=1"


def test_the_end_value_is_passed_and_applied(spark, package):
    (actual,) = incremental(spark, package, "Numbers", end_date=2)
    assert actual["id"] == 1
    assert "singer_end_value=2" in actual["told"]


def test_filters_are_pushed_down(spark, package):
    actual = incremental(spark, package, "Pushed")
    assert [row["id"] for row in actual] == [1, 2]
    assert "GreaterThanOrEqual(attribute=('id',), value=1)" in actual[0]["told"]


def test_two_classes_of_one_name(spark, package):
    other = stream(f"{package}.Pushed")
    assert "pushed" not in rows(spark, stream(f"{package}.Numbers"))[0]["told"]
    assert len(rows(spark, other)) == 3


@pytest.mark.parametrize(
    ("fail", "line", "text"),
    [
        ("schema", 12, "RuntimeError: no schema today"),
        ("partitions", 24, "RuntimeError: no partitions today"),
        ("read", 3, "ValueError: page "),
    ],
)
def test_its_own_errors_name_the_line(spark, package, fail, line, text):
    message = failure(lambda: rows(spark, stream(f"{package}.Numbers", options={"fail": fail})))
    assert f"the source's own code failed: {text}" in message
    file = "pages.py" if fail == "read" else "source.py"
    assert f"{file}', line {line}" in message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("source.Nothing", "the module '{}.source' has no 'Nothing'"),
        ("source.NoSource", "is not a pyspark.sql.datasource.DataSource"),
        ("nowhere.Source", "cannot import '{0}.nowhere': No module named '{0}.nowhere'"),
        ("broken.Source", "cannot import '{}.broken': ZeroDivisionError: division by zero"),
    ],
)
def test_classes_that_are_not_sources(package, name, text):
    package = package.partition(".")[0]
    with pytest.raises(SourceError) as caught:
        source_for(stream(f"{package}.{name}"))
    assert text.format(package) in str(caught.value)
    assert "stream 's', setting 'format'" in str(caught.value)


def test_without_pandas_the_error_says_what_to_install(package, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", {"pandas": None}.__getitem__)
    with pytest.raises(SettingsError, match=r"needs .*pandas.*singer-spark\[python-s"):
        source_for(stream(f"{package}.Numbers"))


def test_a_schema_of_the_settings(spark, package):
    config = stream(f"{package}.Numbers", schema="id INT, told STRING, o STRUCT<a: INT, b: INT>")
    assert types(spark, config)["id"] == "integer"
    config = stream(f"{package}.Numbers", schema="not DDL at all(")
    assert "the setting 'schema' is not Spark DDL" in failure(lambda: types(spark, config))


def test_without_pandas_a_setting_is_wrong(package, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SettingsError, match=r"pip install 'singer-spark\[python-sources\]'"):
        source_for(stream(f"{package}.Numbers"))
