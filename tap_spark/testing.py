"""A test suite for sources: what tap-spark requires of every format.

Needs pytest, and in `conftest.py` the line `pytest_plugins = ["tap_spark.testing"]`, which brings
the fixture `spark`. Subclass `SourceSuite` in a test module, and let pytest find `Test...`:

    from tap_spark.testing import Sample, SourceSuite

    class TestCalendar(SourceSuite):
        form = SOURCE

        def sample(self, folder, spark):
            return Sample({"first_day": "2026-01-01", "last_day": "2026-01-02"}, [...])
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from shared.engine.engine import THREADS, Engine
from shared.singer.stdout import MessageOutput
from shared.spark.conf import SparkSettings
from shared.spark.session import SessionStarter
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import plan_streams
from tap_spark.send.line_output import LineOutput, StateWriter
from tap_spark.send.run import Run
from tap_spark.send.spool import Spool
from tap_spark.send.sync import begun, explained, sync_stream

try:
    import pytest
except ModuleNotFoundError as missing:
    missing.msg = f"{__name__} needs pytest: pip install 'singer-spark[testing]'"
    raise
from jsonschema import Draft202012Validator

from shared.errors import InvalidSettingsError, SettingsError, SingerSparkError, SourceError
from shared.settings.about import settings_of
from shared.testing import heavy_imports
from tap_spark.config import PROGRAM, TapConfig, tap_config
from tap_spark.plan.catalog import metadata_of
from tap_spark.sources.formats import FORMATS, source_format
from tap_spark.sources.source_declaration import GENERAL, SourceFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Row = Mapping[str, Any]
Message = dict[str, Any]
STREAM = "sample"
_ENDLESS = 1e9


@dataclass(frozen=True)
class Bad:
    """Settings that fail, with their error.

    Attributes:
        settings: Settings of the stream, without `name` and `format`.
        text: A part of the error.
    """

    settings: Mapping[str, Any]
    text: str


@dataclass(frozen=True)
class Sample:
    """Settings of a stream, and the expected records.

    Attributes:
        settings: Settings of the stream, without `name` and `format`.
        rows: The records as JSON values, in any order; fractions as `Decimal`.
        types: JSON Schemas of properties for the suite to compare.
        replication_key: A column to test INCREMENTAL with; None for none.
        grow: Adds rows to the source, and returns them; None if rows cannot be added.
        bad: Settings whose errors the suite checks.
    """

    settings: Mapping[str, Any]
    rows: Sequence[Row]
    types: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    replication_key: str | None = None
    grow: Callable[[], Sequence[Row]] | None = None
    bad: Sequence[Bad] = ()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a local session, started as the program starts its own."""
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    conf = {"spark.sql.warehouse.dir": warehouse, "spark.ui.enabled": "false"}
    starter = SessionStarter(SparkSettings(master="local[2]", conf=conf))
    starter.start()
    yield starter.get()
    starter.stop()


class SourceSuite:
    """The tests; a subclass sets their format and sample."""

    form: ClassVar[SourceFormat]

    def sample(self, folder: Path, spark: SparkSession) -> Sample:
        """Create the source of a sample.

        Args:
            folder: An empty folder.
            spark: The session.
        """
        raise NotImplementedError

    def test_it_is_found_by_its_name(self) -> None:
        assert source_format(self.form.name) == self.form
        assert self.form.name in FORMATS

    def test_about_documents_it(self) -> None:
        rows = {row.name: row for row in settings_of(PROGRAM)}
        assert f"`{self.form.name}`" in rows["streams[].format"].description
        for name, schema in self.form.settings.items():
            assert str(schema["description"]) in rows[f"streams[].{name}"].description

    def test_declarations_need_no_spark(self) -> None:
        assert heavy_imports("import tap_spark.cli") == "[]"

    def test_settings_are_checked(self, tmp_path: Path, spark: SparkSession) -> None:
        settings = self.sample(tmp_path, spark).settings
        self._config(settings)
        for name in self.form.required:
            rest = {key: value for key, value in settings.items() if key != name}
            assert f"['{name}']" in self._refused(rest)
        if self.form.places:
            rest = {key: value for key, value in settings.items() if key not in self.form.places}
            assert f"['{self.form.places[0]}']" in self._refused(rest)
        others = {"path", "table", "query", "row_count"} - {*self.form.fields, *GENERAL}
        for name in others:
            value = 1 if name == "row_count" else "a"
            assert "does not apply" in self._refused({**settings, name: value})
        if not self.form.has_log:
            assert "no log" in self._refused({**settings, "replication_method": "LOG_BASED"})
        if not self.form.resumes:
            wanted = {**settings, "replication_method": "INCREMENTAL"}
            assert "is required for INCREMENTAL" in self._refused(wanted)

    def test_the_catalog_fits_the_rows(self, tmp_path: Path, spark: SparkSession) -> None:
        sample = self.sample(tmp_path, spark)
        entry = catalog_for(spark, self._config(sample.settings))["streams"][0]
        names = {name for row in sample.rows for name in row}
        assert set(entry["schema"]["properties"]) == names
        check = Draft202012Validator(entry["schema"])
        assert [error.message for row in sample.rows for error in check.iter_errors(row)] == []
        for name, wanted in sample.types.items():
            schema = entry["schema"]["properties"][name]
            assert {key: schema.get(key) for key in wanted} == wanted

    def test_every_row_and_value_arrives(self, tmp_path: Path, spark: SparkSession) -> None:
        sample = self.sample(tmp_path, spark)
        messages = _run(spark, self._config({**sample.settings, **FULL}), tmp_path)
        assert messages[0]["type"] == "SCHEMA"
        assert _sorted(_records(messages)) == _sorted(sample.rows)
        assert [message["type"] for message in messages[-2:]] == ["ACTIVATE_VERSION", "STATE"]
        check = Draft202012Validator(messages[0]["schema"])
        assert [
            error.message for row in _records(messages) for error in check.iter_errors(row)
        ] == []

    def test_threads_read_what_spark_reads(self, tmp_path: Path, spark: SparkSession) -> None:
        if not self.form.on_driver:
            pytest.skip("not offered: only Spark reads the format")
        sample = self.sample(tmp_path, spark)
        config = self._config({**sample.settings, **FULL})
        threads = Engine(SessionStarter(SparkSettings()), THREADS)
        try:
            messages = _run(spark, config, tmp_path, engine=threads)
        except SettingsError as error:
            pytest.skip(f"not offered: {error.message}")
        assert _sorted(_records(messages)) == _sorted(sample.rows)

    def test_only_what_is_selected_is_read(self, tmp_path: Path, spark: SparkSession) -> None:
        sample = self.sample(tmp_path, spark)
        config = self._config({**sample.settings, **FULL})
        catalog = catalog_for(spark, config)
        names = list(catalog["streams"][0]["schema"]["properties"])
        keys = catalog["streams"][0].get("key_properties") or ()
        deselected = next((name for name in reversed(names) if name not in keys), None)
        if deselected is None or len(names) == 1:
            pytest.skip("not offered: every column is a key")
        root = metadata_of(catalog["streams"][0])
        for item in catalog["streams"][0]["metadata"]:
            if item["breadcrumb"][:2] == ["properties", deselected]:
                item["metadata"]["selected"] = False
        assert ("properties", deselected) in root
        messages = _run(spark, config, tmp_path, catalog=catalog)
        assert deselected not in messages[0]["schema"]["properties"]
        wanted = [{k: v for k, v in row.items() if k != deselected} for row in sample.rows]
        assert _sorted(_records(messages)) == _sorted(wanted)

    def test_incremental_goes_on_at_the_bookmark(self, tmp_path: Path, spark: SparkSession) -> None:
        sample = self.sample(tmp_path, spark)
        key = sample.replication_key
        if key is None:
            pytest.skip("not offered: the sample has no replication key")
        method = {"replication_method": "INCREMENTAL", "replication_key": key}
        config = self._config({**sample.settings, **method, "sort_by_replication_key": True})
        first = _run(spark, config, tmp_path)
        assert _sorted(_records(first)) == _sorted(sample.rows)
        marks = [message["value"]["bookmarks"][STREAM] for message in _states(first)]
        values = [mark.get("replication_key_value") for mark in marks]
        present = [value for value in values if value is not None]
        assert present == sorted(present)
        last = max(row[key] for row in sample.rows if row[key] is not None)
        again = _run(spark, config, tmp_path, state=_states(first)[-1]["value"])
        newest = [row for row in sample.rows if row[key] is None or row[key] == last]
        assert _sorted(_records(again)) == _sorted(newest)
        if sample.grow is not None:
            added = sample.grow()
            grown = _run(spark, config, tmp_path, state=_states(again)[-1]["value"])
            more = [row for row in added if row[key] is None or row[key] >= last]
            assert _sorted(_records(grown)) == _sorted([*newest, *more])

    def test_the_end_date_bounds_incremental(self, tmp_path: Path, spark: SparkSession) -> None:
        sample = self.sample(tmp_path, spark)
        key = sample.replication_key
        if key is None:
            pytest.skip("not offered: the sample has no replication key")
        last = max(row[key] for row in sample.rows if row[key] is not None)
        bounds = {"replication_key": key, "end_date": str(last)}
        messages = _run(spark, self._config({**sample.settings, **bounds}), tmp_path)
        wanted = [row for row in sample.rows if row[key] is None or row[key] < last]
        assert _sorted(_records(messages)) == _sorted(wanted)
        mark = _states(messages)[-1]["value"]["bookmarks"][STREAM].get("replication_key_value")
        assert mark is None or mark < last

    def test_it_resumes(self, tmp_path: Path, spark: SparkSession) -> None:
        if not self.form.resumes:
            pytest.skip("not offered: the format does not resume without a replication key")
        sample = self.sample(tmp_path, spark)
        config = self._config({**sample.settings, "replication_method": "INCREMENTAL"})
        state: Any = None
        for wanted in _steps(sample):
            messages = _run(spark, config, tmp_path, state=state)
            assert _sorted(_records(messages)) == _sorted(wanted)
            state = _states(messages)[-1]["value"]

    def test_it_reads_changes(self, tmp_path: Path, spark: SparkSession) -> None:
        if not self.form.has_log:
            pytest.skip("not offered: the format has no log of changes")
        sample = self.sample(tmp_path, spark)
        config = self._config({**sample.settings, "replication_method": "LOG_BASED"})
        state: Any = None
        for wanted in _steps(sample):
            rows = [{**row, "_sdc_deleted_at": None} for row in wanted]
            messages = _run(spark, config, tmp_path, state=state)
            assert _sorted(_records(messages)) == _sorted(rows)
            state = _states(messages)[-1]["value"]

    def test_errors_are_one_clear_line(self, tmp_path: Path, spark: SparkSession) -> None:
        for bad in self.sample(tmp_path, spark).bad:
            with pytest.raises(SingerSparkError) as caught:
                _run(spark, self._config({**bad.settings, **FULL}), tmp_path)
            text = str(caught.value)
            assert isinstance(caught.value, SettingsError | SourceError)
            assert bad.text in text
            assert STREAM in text or "config['streams'][0]" in text
            assert "\n" not in text

    def _config(self, settings: Mapping[str, Any]) -> TapConfig:
        stream = {"name": STREAM, "format": self.form.name, **settings}
        top = {"connections": stream.pop("connections")} if "connections" in stream else {}
        return tap_config({"streams": [stream], **top})

    def _refused(self, settings: Mapping[str, Any]) -> str:
        with pytest.raises(InvalidSettingsError) as caught:
            self._config(settings)
        return str(caught.value)


def _steps(sample: Sample) -> Iterator[Sequence[Row]]:
    """Yield the records of each of several runs; the third reads added rows."""
    yield sample.rows
    yield ()
    yield sample.grow() if sample.grow is not None else ()
    yield ()


FULL = {"replication_method": "FULL_TABLE"}


def _run(
    spark: SparkSession,
    config: TapConfig,
    folder: Path,
    *,
    catalog: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
    engine: Engine | None = None,
) -> list[Message]:
    """Return the messages of a run, as a reader of standard output gets them."""
    path = folder / "messages.jsonl"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    output = LineOutput(MessageOutput(fd))
    try:
        plans = plan_streams(config, catalog or catalog_for(spark, config), state, 1)
        # Discovery also lists the tables of a connection.
        (plan,) = (plan for plan in plans if plan.stream == config.streams[0].name)
        state_writer = StateWriter(state or {}, output.write, _ENDLESS)
        with Spool(config.spool) as spool, explained(plan.stream):
            run = Run(engine or Engine.of(lambda: spark), output, lambda: spool, config.batch)
            (plan,) = begun(run, [plan], state_writer)
            sync_stream(run, plan, state_writer)
    finally:
        output.close()
        os.close(fd)
    lines = path.read_text().splitlines()
    path.unlink()
    return [json.loads(line, parse_float=Decimal) for line in lines]


def _records(messages: Sequence[Message]) -> list[Row]:
    return [message["record"] for message in messages if message["type"] == "RECORD"]


def _states(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message["type"] == "STATE"]


def _sorted(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True, default=str))
