"""The core of the target where maps decide what is loaded: no Spark, no files."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shared.errors import SettingsError, Where
from shared.formats.file_formats import Encoding
from target_spark.core import events as ev
from target_spark.core.load_plans import LoadPlan, StreamSchema
from target_spark.core.pipeline import Limits, Pipeline
from target_spark.core.policies import SizeAndAge

LINE = b'{"type":"RECORD"}\n'


class Core:
    """A pipeline that gets events, and whose actions are done at once."""

    def __init__(
        self,
        plan: Callable[[StreamSchema], bool],
        overwrite: Callable[[str], bool] = lambda _: False,
    ) -> None:
        def planned(schema: StreamSchema) -> LoadPlan | None:
            return LoadPlan(overwrite(schema.stream)) if plan(schema) else None

        self.pipeline = Pipeline(SizeAndAge(rows=10), Limits(), run_id="run", plan=planned)
        self.log: list[ev.Action] = []

    def hear(self, event: ev.Event) -> None:
        events = [event]
        while events:
            for action in self.pipeline.handle(events.pop(0), 1.0):
                self.log.append(action)
                if isinstance(action, (ev.Convert, ev.Commit, ev.Activate, ev.Finish)):
                    events.append(ev.WorkDone(action.work))

    def schema(self, stream: str, version: int = 0) -> None:
        self.hear(ev.SchemaSeen(stream, {"properties": {"v": version}}, (), 1))

    def records(self, stream: str, lines: int = 1) -> None:
        self.hear(ev.RecordsSeen(stream, LINE * lines, lines, 1))

    def of(self, kind: type) -> list[ev.Action]:
        return [action for action in self.log if isinstance(action, kind)]

    @property
    def states(self) -> list[bytes]:
        return [action.value for action in self.log if isinstance(action, ev.EmitState)]

    @property
    def error(self) -> BaseException | None:
        [end] = [action for action in self.log if isinstance(action, ev.CleanUp)]
        return end.error


def loaded(*names: str) -> Callable[[StreamSchema], bool]:
    return lambda schema: schema.stream in names


def test_records_of_a_removed_stream_are_passed_over_and_state_goes_on() -> None:
    core = Core(loaded("kept"))
    core.schema("gone")
    core.records("gone", 50)
    core.hear(ev.StateSeen(b"1", 2))
    assert core.states == [b"1"]
    core.schema("kept")
    core.records("kept", 3)
    core.records("gone", 3)
    core.hear(ev.StateSeen(b"2", 9))
    core.hear(ev.EndOfInput())
    assert core.states == [b"1", b"2"]
    staged = core.of(ev.Stage)
    assert [action.lines for action in staged if isinstance(action, ev.Stage)] == [3]
    assert {a.header.stream.stream for a in core.of(ev.Commit) if isinstance(a, ev.Commit)} == {
        "kept"
    }
    assert core.error is None


def test_a_version_of_a_removed_stream_is_passed_on_to_whom_it_does_not_concern() -> None:
    core = Core(loaded())
    core.schema("gone")
    core.hear(ev.VersionSeen("gone", 3, 2))
    core.hear(ev.StateSeen(b"1", 3))
    core.hear(ev.EndOfInput())
    assert core.states == [b"1"]
    assert len(core.of(ev.Activate)) == 1


def test_files_of_a_removed_stream_are_consumed_once_state_is_out() -> None:
    core = Core(loaded())
    core.schema("gone")
    core.hear(ev.BatchSeen("gone", Encoding("parquet"), ("file:///a", "file:///b"), 2))
    core.hear(ev.StateSeen(b"1", 3))
    core.hear(ev.EndOfInput())
    assert core.states == [b"1"]
    assert len(core.of(ev.DeleteConsumed)) == 1


def test_records_before_the_schema_of_a_removed_stream_are_bad_input_all_the_same() -> None:
    core = Core(loaded())
    core.records("gone")
    assert "before the SCHEMA" in str(core.error)


def test_a_removed_stream_holds_nothing_back_until_the_end() -> None:
    core = Core(loaded(), overwrite=lambda _: False)
    core.schema("gone")
    core.hear(ev.StateSeen(b"1", 2))
    assert core.states == [b"1"]


def refused(schema: StreamSchema) -> bool:
    if schema.stream == "bad" or schema.serial:
        raise SettingsError("unknown name 'prise'", where=Where(setting="stream_maps.bad.x"))
    return True


def test_a_schema_that_maps_do_not_fit_ends_the_run_after_what_came_before() -> None:
    core = Core(refused)
    core.schema("good")
    core.records("good", 2)
    core.hear(ev.StateSeen(b"1", 3))
    core.schema("bad")
    core.records("bad", 2)
    core.hear(ev.StateSeen(b"2", 9))
    assert core.states == [b"1"]
    assert isinstance(core.error, SettingsError)
    assert core.error.exit_code == 2
    assert len(core.of(ev.Commit)) == 1


def test_the_first_schema_refused_never_starts_spark() -> None:
    core = Core(refused)
    core.schema("bad")
    assert not core.pipeline.has_streams
    assert isinstance(core.error, SettingsError)


def test_a_second_schema_refused_loads_what_came_under_the_first() -> None:
    core = Core(refused)
    core.schema("good")
    core.records("good", 2)
    core.hear(ev.StateSeen(b"{}", 2))
    core.schema("good", version=1)
    assert isinstance(core.error, SettingsError)
    assert len(core.of(ev.Commit)) == 1


def test_half_a_table_does_not_replace_a_whole_one() -> None:
    core = Core(refused, overwrite=lambda stream: stream == "good")
    core.schema("good")
    core.records("good", 2)
    core.schema("bad")
    assert isinstance(core.error, SettingsError)
    assert core.of(ev.Finish) == []


@pytest.mark.parametrize("times", [1, 5])
def test_the_same_schema_again_is_planned_once(times: int) -> None:
    asked: list[int] = []

    def plan(schema: StreamSchema) -> bool:
        asked.append(schema.serial)
        return True

    core = Core(plan)
    for _ in range(times):
        core.schema("s")
    core.schema("s", version=1)
    assert asked == [0, 1]
