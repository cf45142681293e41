"""The rules of the pipeline, one by one."""

from __future__ import annotations

import math

import pytest
from target_world import World, pipeline

from shared.errors import (
    DestinationError,
    MessageError,
    PartialRunError,
    TerminatedRunError,
    Where,
)
from shared.formats.file_formats import Encoding
from target_spark.core import batches, schedule
from target_spark.core import events as ev
from target_spark.core.batches import GATHER_SECONDS
from target_spark.core.events import MOST_FILES, FilesPiece
from target_spark.core.load_plans import InputFile, LoadPlan
from target_spark.core.policies import SizeAndAge


def kinds(actions: list[ev.Action]) -> list[str]:
    return [type(action).__name__ for action in actions]


def world(*, overwrite: bool | frozenset[str] = False, **rule: object) -> World:
    return World(pipeline(SizeAndAge(**rule), overwrite=overwrite), overwrite=overwrite)


def test_a_run_with_only_state_passes_it_on_and_never_starts_spark():
    w = world()
    assert kinds(w.state()) == ["EmitState"]
    assert kinds(w.state()) == ["EmitState"]
    w.end()
    assert not w.core.has_streams
    w.check_complete()


def test_records_are_expected_from_the_first_schema_on():
    w = world()
    assert not w.core.has_streams
    assert w.schema("a") == []
    assert w.core.has_streams
    assert w.schema("b") == []
    assert w.schema("a") == []


def test_one_flush_from_record_to_state():
    w = world(rows=2)
    w.schema("a")
    assert kinds(w.records("a", 1)) == ["Stage"]
    assert w.state() == []
    assert kinds(w.records("a", 1)) == ["Stage", "CloseFile", "Convert"]
    assert kinds(w.finish_work()) == ["Commit"], "the file stays, as it may have to be cut"
    assert kinds(w.finish_work()) == ["RemoveFile", "Forget", "EmitState"]


def test_rows_are_cut_exactly_within_one_run_of_lines():
    w = world(rows=3)
    w.schema("a")
    actions = w.records("a", 8)
    stages = [a for a in actions if isinstance(a, ev.Stage)]
    assert [(s.lines, s.first_line, bytes(s.data)) for s in stages] == [
        (3, 2, b"2\n3\n4\n"),
        (3, 5, b"5\n6\n7\n"),
        (2, 8, b"8\n9\n"),
    ]
    w.end()
    w.finish_all()
    assert [len(w.flush_keys[n][0]) for n in sorted(w.flush_keys)] == [3, 3, 2]


def test_a_file_is_converted_before_its_batch_is_closed():
    w = World(pipeline(file_bytes=4))
    w.schema("a")
    assert kinds(w.records("a", 2)) == ["Stage", "CloseFile", "Convert"]
    assert kinds(w.records("a", 1)) == ["Stage"]
    w.finish_work()
    assert w.works == {}
    w.end()
    w.finish_all()
    assert w.flush_keys[1] == {0: [2, 3], 1: [4]}
    w.check_complete()


def test_threads_convert_files_of_half_the_size():
    w = World(pipeline(file_bytes=8, gathers=lambda: False))
    w.schema("a")
    assert kinds(w.records("a", 1)) == ["Stage"]
    assert kinds(w.records("a", 1)) == ["Stage", "CloseFile", "Convert"]


def test_threads_begin_with_a_part_of_what_spark_waits_for(monkeypatch):
    monkeypatch.setattr(batches, "THREADS_BYTES", 4)
    w = World(pipeline(file_bytes=100, gathers=lambda: False))
    w.schema("a")
    assert kinds(w.records("a", 1)) == ["Stage"]
    assert kinds(w.records("a", 1)) == ["Stage", "CloseFile", "Convert"]


def test_a_file_with_many_runs_of_lines_is_closed():
    w = World(pipeline(file_runs=2))
    w.schema("a")
    w.schema("b")
    assert "CloseFile" not in kinds(w.records("a"))
    assert "CloseFile" not in kinds(w.records("a"))
    w.records("b")
    assert "CloseFile" in kinds(w.records("a"))


def test_bytes_close_a_batch():
    w = world(size=6)
    w.schema("a")
    assert "CloseFile" not in kinds(w.records("a", 2))
    assert "CloseFile" in kinds(w.records("a", 1))


def test_a_silent_input_is_flushed_by_the_clock():
    w = world(seconds=60)
    assert math.isinf(w.core.deadline())
    w.schema("a")
    w.records("a")
    assert w.core.deadline() == w.now + 60
    assert w.tick(59.9) == []
    assert kinds(w.tick(0.2)) == ["CloseFile", "Convert"]
    assert math.isinf(w.core.deadline())


def test_age_counts_from_the_first_message_not_the_last():
    w = world(seconds=60)
    w.schema("a")
    w.records("a")
    w.tick(40)
    w.records("a")
    assert kinds(w.tick(20)) == ["CloseFile", "Convert"]


def test_an_identical_schema_does_nothing_and_another_closes_the_batch():
    w = world()
    w.schema("a", "x")
    w.records("a")
    assert w.schema("a", "x") == []
    assert kinds(w.schema("a", "y")) == ["CloseFile", "Convert"]
    w.records("a")
    w.end()
    w.finish_all()
    assert [w.headers[n].stream.serial for n in sorted(w.headers)] == [0, 1]
    w.check_complete()


def test_other_keys_are_another_schema():
    w = world()
    w.schema("a", "x")
    w.records("a")
    actions = w.hear(ev.SchemaSeen("a", {"kind": "x"}, ("id", "other"), 3))
    assert kinds(actions) == ["CloseFile", "Convert"]


def test_record_and_batch_of_a_stream_keep_their_order_within_one_flush():
    w = world()
    w.schema("a")
    w.records("a", 2)
    w.batch("a", 2)
    w.records("a", 1)
    w.end()
    while w.works:
        w.finish_work(max(w.works))
    assert w.flush_keys == {1: {0: [2, 3], 1: ["f4-0", "f4-1"], 2: [5]}}
    w.check_complete()


def test_an_empty_manifest_is_nothing():
    w = world()
    w.schema("a")
    assert w.batch("a", 0) == []
    assert kinds(w.state()) == ["EmitState"]


def test_converted_rows_of_batch_files_count_for_the_flush_rule():
    w = world(rows=2)
    w.schema("a")
    w.batch("a", 1)
    assert w.finish_work() == []
    w.batch("a", 1)
    assert kinds(w.finish_work()) == ["Commit"]


def test_a_full_manifest_closes_the_batch():
    w = world(files=2)
    w.schema("a")
    w.batch("a", 2)
    assert kinds(w.finish_work()) == ["Commit"]


def merging() -> World:
    w = World(pipeline(SizeAndAge(), parallel=1))
    w.schema("a")
    w.schema("b")
    return w


def conversions(w: World) -> list[tuple[int, int]]:
    """Return the position in its flush of each conversion, and its files."""
    pieces = (a.piece for a in w.log if isinstance(a, ev.Convert))
    return [(piece.index, len(getattr(piece, "files", ()))) for piece in pieces]


def test_files_that_wait_for_one_flush_are_converted_together():
    w = merging()
    for stream in "aabaa":
        w.batch(stream, 2)
    w.end()
    w.finish_all()
    assert conversions(w) == [(0, 2), (1, 6), (0, 2)]
    assert w.durable == {"a": ["f3-0", "f3-1", "f4-0", "f4-1", "f6-0", "f6-1", "f7-0", "f7-1"],
                         "b": ["f5-0", "f5-1"]}  # fmt: skip
    w.check_complete()


def test_files_keep_their_place_among_records_of_their_flush():
    w = merging()
    w.batch("b")
    for _ in range(2):
        w.batch("a")
        w.batch("a")
        w.records("a", 1)
    w.end()
    w.finish_all()
    assert conversions(w) == [(0, 1), (0, 2), (2, 0), (3, 2), (5, 0)]
    w.check_complete()


def test_not_too_many_files_are_converted_together():
    w = merging()
    for _ in range(3):
        w.batch("a", MOST_FILES - 1)
        w.batch("a", 1)
    w.end()
    w.finish_all()
    assert conversions(w) == [(0, 63), (1, 64), (3, 64), (5, 1)]
    w.check_complete()


@pytest.mark.parametrize(("size", "most"), [(0, 64), (1000, 1000), (10**7, 64)])
def test_more_files_are_converted_together_if_they_are_small(size: int, most: int):
    file = InputFile("a", Encoding("jsonl"))
    pieces = [FilesPiece(index, index, (file,), size=size) for index in range(1100)]
    piece = pieces[0]
    for after in pieces[1:]:
        merged = piece.with_next(after)
        if merged is None:
            break
        piece = merged
    assert len(piece.files) == most


def test_files_wait_a_moment_for_more_once_their_size_is_known():
    w = merging()
    w.batch("a")
    w.finish_work()
    for _ in range(3):
        assert w.batch("a") == []
    assert w.core.deadline() == w.now + GATHER_SECONDS
    assert kinds(w.tick(GATHER_SECONDS)) == ["Convert"]
    w.finish_work()
    w.batch("a")
    assert kinds(w.schema("a", "other")) == ["Convert"]
    w.end()
    w.finish_all()
    assert conversions(w) == [(0, 1), (1, 3), (4, 1)]
    w.check_complete()


def test_files_do_not_wait_for_threads():
    w = World(pipeline(gathers=lambda: False))
    w.schema("a")
    w.batch("a")
    w.finish_work()
    assert kinds(w.batch("a")) == ["Convert"]
    w.end()
    w.finish_all()
    w.check_complete()


def test_files_wait_no_longer_if_they_fill_a_job(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schedule, "JOB_BYTES", 20)
    w = merging()
    w.batch("a")
    w.finish_work()
    assert w.batch("a") == []
    assert kinds(w.batch("a")) == ["Convert"]
    w.end()
    w.finish_all()
    assert conversions(w) == [(0, 1), (1, 2)]
    w.check_complete()


def test_waiting_files_do_not_keep_staging_full():
    w = World(pipeline(SizeAndAge(), parallel=1, staged_bytes=1))
    for name in "ab":
        w.schema(name)
    w.batch("a")
    w.finish_work()
    w.batch("a")
    w.records("b", 1)
    w.finish_all()
    assert w.core.wants_input


def test_files_of_another_flush_are_converted_apart():
    w = merging()
    w.batch("a")
    w.batch("a")
    w.schema("a", "other")
    w.batch("a")
    w.end()
    w.finish_all()
    assert conversions(w) == [(0, 1), (1, 1), (0, 1)]
    w.check_complete()


def test_another_version_is_another_flush():
    w = world()
    w.schema("a")
    w.records("a", 1, version=1)
    w.records("a", 1, version=1)
    assert kinds(w.records("a", 1, version=2))[:2] == ["CloseFile", "Stage"]
    w.batch("a", 1, version=3)
    w.end()
    w.finish_all()
    assert [w.headers[n].version for n in sorted(w.headers)] == [1, 2, 3]
    w.check_complete()


def test_a_version_waits_for_the_flushes_before_it_and_holds_those_after_it():
    w = world(rows=1)
    w.schema("a")
    w.records("a")
    w.version("a", 7)
    w.records("a")
    assert w.state() == []
    order = []
    while w.works:
        work = max(w.works)
        order.append(type(w.works[work]).__name__)
        w.finish_work(work)
    assert order == ["Convert", "Convert", "Commit", "Activate", "Commit"]
    assert len(w.emitted) == 1


def test_a_version_alone_is_a_durable_act_of_its_own():
    w = world()
    w.schema("a")
    assert w.version("a", 1) == []
    assert kinds(w.state()) == ["Activate"]
    assert kinds(w.finish_work()) == ["EmitState"]


def close_by_schema(w: World) -> None:
    w.schema("a", "y")


def close_by_version(w: World) -> None:
    w.records("a", 1, 2)


def activate(w: World) -> None:
    w.version("a", 1)


def delete(w: World) -> None:
    w.keys("a")


@pytest.mark.parametrize("close", [close_by_schema, close_by_version, activate, delete])
@pytest.mark.parametrize("until", ["state", "age", "room", "end"])
def test_what_is_closed_before_it_is_due_waits_for_a_state_its_age_room_or_the_end(close, until):
    w = World(pipeline(SizeAndAge(seconds=60), waiting=3))
    w.schema("a")
    w.schema("b")
    w.records("b", 1, 1)
    w.records("a", 1, 1)
    w.state()
    w.records("a", 1, 1)
    close(w)
    w.finish_all()
    assert w.durable["a"] == []
    if until == "state":
        w.state()
        w.finish_all()
        assert (w.durable["a"] == []) is (close is close_by_version), "its own batch may be bad"
    elif until == "age":
        w.tick(59.9)
        assert w.works == {}
        w.tick(0.2)
    elif until == "room":
        for kind in "xyz":
            w.records("b", 1, 1)
            w.schema("b", kind)
    else:
        w.end()
    w.finish_all()
    assert w.durable["a"] or until == "state"


def test_a_full_batch_does_not_wait_behind_what_is_held():
    w = world(rows=2)
    w.schema("a")
    w.version("a", 1)
    w.records("a", 2, 1)
    w.finish_all()
    assert len(w.durable["a"]) == 3


def test_an_idle_stream_holds_nothing_back():
    w = world(rows=1)
    for name in "ab":
        w.schema(name)
    w.records("a")
    w.finish_all()
    w.records("b")
    w.state()
    w.finish_all()
    assert len(w.emitted) == 1


def test_the_slow_streams_that_hold_state_back_are_flushed_with_the_fast_one():
    w = world(rows=3)
    w.schema("slow")
    w.schema("fast")
    w.schema("later")
    w.records("slow", 1)
    w.records("fast", 1)
    w.state()
    w.records("later", 1)
    w.records("fast", 2)
    w.finish_all()
    assert len(w.emitted) == 1
    assert w.durable == {"slow": [4], "fast": [5, 8, 9]}


def test_streams_commit_beside_each_other():
    w = world(rows=1)
    w.schema("a")
    w.schema("b")
    w.records("a")
    w.records("b")
    for work in list(w.works):
        w.finish_work(work)
    assert kinds(list(w.works.values())) == ["Commit", "Commit"]


def test_no_more_work_than_allowed_and_commits_before_conversions():
    w = World(pipeline(SizeAndAge(rows=1), parallel=1))
    w.schema("a")
    w.records("a", 3)
    seen = []
    while w.works:
        assert len(w.works) == 1
        seen.append(type(next(iter(w.works.values()))).__name__)
        w.finish_work()
    assert seen == ["Convert", "Commit"] * 3


def test_input_waits_while_too_many_batches_do():
    w = World(pipeline(SizeAndAge(rows=1), waiting=2))
    w.schema("a")
    w.records("a")
    assert w.core.wants_input
    w.records("a")
    assert not w.core.wants_input
    w.finish_all()
    assert w.core.wants_input


def test_full_staging_closes_the_largest_batch():
    w = World(pipeline(staged_bytes=8))
    w.schema("a")
    w.schema("b")
    w.records("a", 1)
    assert w.core.wants_input
    w.records("b", 4)
    assert not w.core.wants_input
    w.finish_all()
    assert w.core.wants_input
    assert w.durable["b"] == [4, 5, 6, 7]
    assert w.durable["a"] == []


def test_overwrite_is_durable_only_when_the_stream_is_finished():
    w = world(rows=1, overwrite=True)
    w.schema("a")
    w.schema("empty")
    w.records("a")
    w.version("a", 1)
    w.state()
    w.finish_all()
    assert w.emitted == []
    w.end()
    w.finish_all()
    assert w.finished == {"a", "empty"}
    assert len(w.emitted) == 1
    w.check_complete()


def test_state_before_any_schema_goes_out_in_overwrite_too():
    w = world(overwrite=True)
    assert kinds(w.state()) == ["EmitState"]


@pytest.mark.parametrize("kind", ["records", "batch", "version"])
def test_a_message_before_its_schema_is_an_error_with_its_line(kind):
    w = world()
    w.state()
    actions = getattr(w, kind)("a", 1)
    assert kinds(actions) == ["CleanUp"]
    assert isinstance(w.clean_up.error, MessageError)
    assert str(w.clean_up.error).startswith("stream 'a', line 2: ")


def test_a_stop_lets_running_commits_end_and_their_state_go_out():
    w = world(rows=1)
    w.schema("a")
    w.records("a")
    w.state()
    w.finish_work()
    w.records("a")
    error = TerminatedRunError("stop")
    assert w.stop(error) == []
    assert w.core.stopping
    assert w.core.commits_running
    commit = next(n for n, a in w.works.items() if isinstance(a, ev.Commit))
    actions = w.finish_work(commit)
    assert kinds(actions) == ["Forget", "EmitState", "CleanUp"]
    assert w.clean_up == ev.CleanUp(error, ((2, w.headers[2]),))


def test_a_failed_conversion_stops_the_run_and_gives_the_rest_up():
    w = world(rows=1)
    w.schema("a")
    w.records("a")
    w.state()
    error = DestinationError("disk")
    assert kinds(w.fail_work(error)) == ["CleanUp"]
    assert w.clean_up == ev.CleanUp(error, ((1, w.headers[1]),))
    assert w.emitted == []


def test_after_failed_work_the_run_waits_for_what_the_next_state_covers():
    w = World(pipeline(SizeAndAge(rows=1), parallel=2))
    w.schema("a")
    w.schema("b")
    w.records("b")
    commit = work_of(w.finish_work(), ev.Commit)
    w.version("b", 1)
    conversion = work_of(w.records("b"), ev.Convert)
    w.state()
    w.keys("a")
    w.tick(60.0)
    deletion = work_of(w.finish_work(commit), ev.DeleteMissing)
    error = DestinationError("disk")
    activation = work_of(w.fail_work(error, deletion), ev.Activate)
    assert w.finish_work(activation) == []
    commit = work_of(w.finish_work(conversion), ev.Commit)
    assert kinds(w.finish_work(commit)) == ["Forget", "EmitState", "CleanUp"]
    assert w.clean_up.error is error


def work_of(actions: list[ev.Action], kind: type[ev.Action]) -> int:
    (action,) = (action for action in actions if isinstance(action, kind))
    return action.work


@pytest.mark.parametrize("name", [None, "other"])
def test_an_error_of_a_flush_names_its_stream(name: str | None) -> None:
    w = world(rows=1)
    w.schema("b")
    w.records("b", 1)
    w.finish_work()
    error = DestinationError("column 'x' cannot change", where=Where(stream=name, setting="y"))
    w.fail_work(error)
    assert str(error) == f"stream '{name or 'b'}', setting 'y': column 'x' cannot change"


def test_the_first_reason_to_stop_is_reported():
    w = world(rows=1)
    w.schema("a")
    w.records("a")
    w.finish_work()
    first = TerminatedRunError("first")
    w.stop(first)
    w.fail_work(DestinationError("second"))
    assert w.clean_up.error is first


def test_bad_input_is_drained_before_the_run_ends():
    w = world(rows=10)
    for name in "ab":
        w.schema(name)
        w.records(name, 2)
    w.state()
    w.records("a", 1)
    error = MessageError("line 8")
    assert kinds(w.bad_input(error)) == ["CloseFile", "CloseFile", "Convert", "Convert"]
    assert not w.core.wants_input
    w.finish_all()
    assert w.durable == {"a": [2, 3], "b": [5, 6]}
    w.check_cut()
    assert w.clean_up.error is error


def test_a_flush_is_cut_before_a_record_that_proves_bad():
    w = world(rows=10)
    w.schema("a")
    w.schema("b")
    w.records("a", 2)
    w.state()
    w.records("b", 1)
    w.state()
    w.records("a", 4)
    w.state()
    w.bad = {9}
    w.end()
    w.finish_all()
    assert w.durable == {"a": [3, 4], "b": [6]}
    assert w.emitted == [b'{"line":5}', b'{"line":7}']
    assert str(w.clean_up.error) == "stream 'a', line 9: bad 9"
    assert w.clean_up.flushes == ()


@pytest.mark.parametrize("rows", [10, 3])
@pytest.mark.parametrize("next_of", [min, max])
def test_flushes_that_are_closed_together_wait_until_none_of_them_is_bad(rows, next_of):
    """At the end of the input, and if another is full: a retry would load them again."""
    w = world(rows=rows)
    for name in "ab":
        w.schema(name)
    w.records("a", 1)
    w.state()
    w.records("a", 1)
    w.records("b", 3)
    w.state()
    w.bad = {8}
    w.end()
    while w.works:
        w.finish_work(next_of(w.works))
    assert w.durable["a"] == [3]
    assert not w.durable["b"]
    assert w.emitted == [b'{"line":4}']
    w.check_cut(8)


@pytest.mark.parametrize("bad", [2, 4, 7])
def test_the_state_right_before_a_bad_record_goes_out_wherever_it_is(bad):
    w = world(rows=10)
    w.schema("a")
    for _ in range(3):
        w.records("a", 1)
        w.state()
    w.bad = {bad, 6}
    w.end()
    w.finish_all()
    assert w.emitted == [b'{"line":%d}' % line for line in (3, 5) if line == min(bad, 6) - 1]


def test_a_flush_is_cut_before_a_message_with_a_bad_file():
    w = merging()
    for _ in range(3):
        w.batch("a", 2)
        w.state()
    w.records("a", 1)
    w.bad = {"f5-1", "f7-0"}
    w.end()
    w.finish_all()
    assert w.durable["a"] == ["f3-0", "f3-1"]
    assert w.emitted == [b'{"line":4}']
    assert w.deleted == [1], "its files, which that STATE covers"
    assert [str(error) for error in w.failed] == [
        "stream 'a', file 'f5-1', line 3: bad f5-1",
        "stream 'a', file 'f5-1', line 3: bad f5-1",
    ]
    assert w.clean_up.error is w.failed[1]


def test_conversions_and_commits_after_a_bad_record_do_not_begin():
    w = World(pipeline(SizeAndAge(rows=2), parallel=1))
    w.schema("a")
    w.schema("b")
    w.records("a", 1)
    w.state()
    w.records("a", 1)
    w.records("b", 2)
    w.version("a", 1)
    w.records("a", 2)
    w.bad = {5}
    assert kinds(w.finish_work()) == ["RemoveFile", "RemoveFile", "Convert"]
    assert not w.core.wants_input
    w.finish_all()
    assert w.durable == {"a": [3]}
    assert [number for number, _ in w.clean_up.flushes] == [2, 3]


def test_what_is_being_converted_behind_a_bad_record_is_given_up_once_it_is():
    w = World(pipeline(SizeAndAge(rows=10), file_bytes=4, parallel=2))
    w.schema("a")
    w.records("a", 1)
    w.state()
    w.records("a", 1)
    w.state()
    w.records("a", 2)
    w.bad = {4}
    w.finish_work(1)
    assert list(w.works) == [2, 3]
    w.finish_work(3)
    assert kinds(w.finish_work(2)) == ["DiscardPieces", "RemoveFile", "Commit"]
    w.finish_all()
    assert w.durable == {"a": [2]}
    assert w.emitted == [b'{"line":3}']


def test_of_two_bad_places_the_first_one_is_told():
    w = World(pipeline(SizeAndAge(rows=2)))
    for stream in "ab":
        w.schema(stream)
        w.records(stream, 2)
    w.bad = {2, 5}
    w.finish_work(2)
    assert not w.core.done
    w.finish_all()
    assert [str(error) for error in w.failed] == [
        "stream 'b', line 5: bad 5",
        "stream 'a', line 2: bad 2",
    ]
    assert w.clean_up.error is w.failed[1]


def test_a_bad_record_never_replaces_a_table():
    w = world(rows=10, overwrite=frozenset("a"))
    w.schema("a")
    w.schema("b")
    w.records("b", 1)
    w.state()
    w.records("a", 2)
    w.bad = {6}
    w.end()
    w.finish_work(1)
    assert w.core.done
    assert w.emitted == []
    assert w.finished == set()
    assert w.clean_up.error is w.failed[0]


def test_a_signal_while_what_came_before_a_bad_record_is_drained_ends_the_run():
    w = world(rows=10)
    w.schema("a")
    w.records("a", 1)
    w.state()
    w.records("a", 2)
    w.bad = {4}
    w.end()
    w.finish_work()
    assert kinds(w.stop(TerminatedRunError("y"))) == ["CleanUp"]
    assert w.clean_up.error is w.failed[0]


def test_a_record_before_its_schema_is_drained_too():
    w = world(rows=10)
    w.schema("a")
    w.records("a", 2)
    w.state()
    w.records("unknown")
    w.finish_all()
    assert w.durable["a"] == [2, 3]
    assert len(w.emitted) == 1
    assert str(w.clean_up.error).startswith("stream 'unknown', line 5: ")


def test_bad_input_ends_an_overwriting_run_at_once():
    w = world(overwrite=True)
    w.schema("a")
    w.records("a")
    error = MessageError("x")
    assert kinds(w.bad_input(error)) == ["CleanUp"]
    assert w.clean_up.error is error
    assert [number for number, _ in w.clean_up.flushes] == [1]


def test_a_signal_while_bad_input_is_drained_ends_the_run():
    w = world(rows=10)
    w.schema("a")
    w.records("a")
    w.state()
    error = MessageError("x")
    w.bad_input(error)
    assert kinds(w.stop(TerminatedRunError("y"))) == ["CleanUp"]
    assert w.clean_up.error is error


@pytest.mark.parametrize("has_state", [False, True])
def test_what_no_state_can_cover_any_more_is_not_committed_after_a_failure(has_state):
    w = World(pipeline(SizeAndAge(rows=5), parallel=1))
    for name in "ab":
        w.schema(name)
    w.batch("b", 1)
    w.finish_work()
    w.records("a", 5)
    w.finish_work()
    if has_state:
        w.state()
    w.end()
    assert [type(a).__name__ for a in w.works.values()] == ["Commit"]
    assert kinds(w.fail_work(DestinationError("x"))) == ["CleanUp"]
    assert w.durable["b"] == []


def test_a_converted_file_is_cut_at_the_state_before_a_bad_record_of_another_stream():
    w = world(rows=100)
    for name in "ab":
        w.schema(name)
    for _ in range(3):
        w.records("a", 2)
        w.records("b", 2)
        w.state()
    w.bad = {14}
    w.end()
    convert = {a.header.stream.stream: n for n, a in w.works.items()}
    w.finish_work(convert["a"])
    w.finish_work(convert["b"])
    w.finish_all()
    assert w.durable == {"a": [3, 4, 8, 9], "b": [5, 6, 10, 11]}
    assert w.emitted == [b'{"line":12}']
    w.check_cut(14)


def test_files_that_are_kept_for_a_cut_are_bounded_and_the_cut_goes_before_those_that_are_gone():
    w = World(pipeline(SizeAndAge(rows=100), file_bytes=7, staged_bytes=20))
    for name in "ab":
        w.schema(name)
    w.records("b", 1)
    w.state()
    for _ in range(3):
        w.records("a", 2)
        w.state()
        w.records("a", 2)
        w.finish_all()
    assert sum(not file.removed and file.closed for file in w.files.values()) == 2
    w.bad_input(MessageError("x"))
    w.finish_all()
    assert w.durable["b"] == [3]
    assert w.emitted[-1:] == [b'{"line":12}'], "the STATE inside of the last file that is kept"


def test_rows_after_the_last_state_are_loaded_and_reported():
    w = world(rows=10)
    w.schema("a")
    w.schema("b")
    w.records("a", 2)
    w.state()
    w.records("a", 3)
    w.batch("a", 2)
    w.end()
    w.finish_all()
    assert w.durable["a"] == [3, 4, 6, 7, 8, "f9-0", "f9-1"]
    assert w.uncovered == {"a": ev.ReportUncovered("a", 5, loaded=True, expected=True)}
    assert not w.deleted, "the next run needs the files"
    finish = [action for action in w.log if isinstance(action, ev.Finish)]
    assert [(action.stream, action.awaits_state) for action in finish] == [("a", True)]
    assert w.clean_up.error is None


def test_without_any_state_none_is_expected():
    w = world(rows=10)
    w.schema("a")
    w.records("a", 3)
    w.batch("a", 1)
    w.end()
    w.finish_all()
    assert w.uncovered == {"a": ev.ReportUncovered("a", 4, loaded=True, expected=False)}
    assert len(w.deleted) == 1
    assert not any(a.awaits_state for a in w.log if isinstance(a, ev.Finish))


def test_a_state_from_before_a_stream_is_none_of_its_own():
    """The SDK does not repeat an equal STATE: equal rows of the next run are no replay."""
    w = world(rows=10)
    w.state()
    w.schema("a")
    w.records("a", 3)
    w.end()
    w.finish_all()
    assert not any(a.awaits_state for a in w.log if isinstance(a, ev.Finish))
    assert w.uncovered == {"a": ev.ReportUncovered("a", 3, loaded=True, expected=True)}


def test_rows_that_wait_for_the_end_of_the_stream_await_their_state():
    w = world(overwrite=True)
    w.schema("a")
    w.records("a", 2)
    w.state()
    w.end()
    w.finish_all()
    assert [a.awaits_state for a in w.log if isinstance(a, ev.Finish)] == [True]


def test_a_strict_end_fails_once_all_is_loaded():
    core = pipeline(SizeAndAge(rows=10))
    core.strict_end = True
    w = World(core)
    w.schema("a")
    w.records("a", 3)
    w.batch("a", 1)
    w.end()
    w.finish_all()
    assert w.durable["a"] == [2, 3, 4, "f5-0"]
    assert not w.deleted
    assert isinstance(w.clean_up.error, PartialRunError)
    assert "4 rows after its last STATE" in str(w.clean_up.error)


def test_rows_after_the_last_state_are_discarded_if_asked_for():
    core = pipeline(SizeAndAge(rows=10))
    core.plan = lambda schema: LoadPlan(discards=schema.stream == "a")
    w = World(core)
    for name in "ab":
        w.schema(name)
    w.records("a", 2)
    w.state()
    w.records("a", 2)
    w.records("b", 1)
    w.end()
    w.finish_all()
    assert w.durable == {"a": [3, 4], "b": [8]}
    assert not w.uncovered["a"].loaded
    assert w.clean_up == ev.CleanUp(None, ())


@pytest.mark.parametrize("is_read", [True, False])
def test_batch_files_after_the_last_state_are_discarded_before_they_are_read_too(is_read):
    core = pipeline(SizeAndAge(rows=10), parallel=1)
    core.plan = lambda schema: LoadPlan(discards=schema.stream == "a")
    w = World(core)
    for name in "ab":
        w.schema(name)
    w.records("a", 1)
    w.batch("b")
    w.state()
    w.batch("a", 2)
    while is_read and w.works:
        w.finish_work()
    w.end()
    w.finish_all()
    assert w.durable == {"a": [3], "b": ["f4-0"]}
    assert w.uncovered == {"a": ev.ReportUncovered("a", 2 * is_read, loaded=False, expected=True)}


def test_a_block_of_many_small_batches_is_taken_in_portions():
    w = World(pipeline(SizeAndAge(rows=1), waiting=3))
    w.schema("a")
    actions = w.records("a", 1000)
    assert kinds(actions).count("Stage") == 3
    assert not w.core.wants_input
    while not w.core.wants_input:
        w.finish_work()
        open_files = sum(not f.removed for f in w.files.values())
        assert open_files <= 3
    w.state()
    w.end()
    w.finish_all()
    w.check_complete()


def test_portions_that_wait_are_taken_before_anything_else():
    w = World(pipeline(SizeAndAge(rows=1), waiting=3))
    w.schema("a")
    w.records("a", 10)
    w.state()
    w.records("a", 2)
    w.finish_all()
    w.end()
    w.finish_all()
    w.check_complete()


def test_portions_that_wait_are_drained_at_bad_input():
    w = World(pipeline(SizeAndAge(rows=2), waiting=1))
    w.schema("a")
    w.records("a", 9)
    w.state()
    error = MessageError("x")
    w.bad_input(error)
    w.finish_all()
    w.check_complete(error)


def test_converted_bytes_make_room_while_their_batch_is_open():
    w = World(pipeline(file_bytes=4, staged_bytes=8))
    w.schema("a")
    w.records("a", 4)
    assert not w.core.wants_input
    assert kinds(w.finish_work()) == ["RemoveFile"]
    assert w.core.wants_input
    w.end()
    w.finish_all()
    assert len(w.flush_keys) == 1
    w.check_complete()


def test_input_after_a_stop_is_ignored():
    w = world(rows=1)
    w.schema("a")
    w.records("a")
    w.finish_work()
    w.stop(TerminatedRunError("x"))
    assert w.core.handle(ev.RecordsSeen("a", b"1\n", 1, 9), w.now) == []
    assert w.core.handle(ev.EndOfInput(), w.now) == []
    assert w.core.handle(ev.Tick(), w.now + 1e6) == []


def test_tokens_differ_between_flushes_and_runs():
    w = world(rows=1)
    w.schema("a")
    w.records("a", 2)
    w.finish_all()
    assert {header.token for header in w.headers.values()} == {"run-000001", "run-000002"}


def test_flush_time_is_told_to_the_rule_and_reported():
    reported = []

    class Rule(SizeAndAge):
        def flushed(self, stream, batch, seconds):
            reported.append((stream, batch.rows, seconds))

    w = World(pipeline(Rule(rows=2)))
    w.schema("a")
    w.records("a", 2)
    w.tick(1.5)
    w.finish_work()
    w.now += 1.0
    (forget,) = (a for a in w.finish_work() if isinstance(a, ev.Forget))
    assert reported == [("a", 2, 2.5)]
    assert (forget.flush, forget.seconds) == (1, 2.5)


def test_overwrite_without_rows_commits_an_empty_batch_first():
    w = world(overwrite=True)
    w.schema("a")
    w.end()
    order = []
    while w.works:
        order.append(type(next(iter(w.works.values()))).__name__)
        w.finish_work()
    assert order == ["Commit", "Finish"]
    w.check_complete()


def test_methods_differ_by_stream():
    w = world(rows=1, overwrite=frozenset("b"))
    w.schema("a")
    w.records("a")
    w.state()
    w.schema("b")
    w.records("b")
    w.state()
    w.finish_all()
    assert len(w.emitted) == 1, "the second STATE waits for the table that is replaced"
    w.end()
    w.finish_all()
    w.check_complete()
    assert (w.finished, w.ended) == ({"b"}, ["a"])


def test_bad_input_leaves_a_table_that_would_be_replaced_as_it_is():
    w = world(rows=1, overwrite=frozenset("b"))
    w.schema("b")
    w.records("b")
    w.schema("a")
    w.records("a")
    w.bad_input(error := MessageError("x"))
    assert not w.finished
    assert w.core.done
    assert w.clean_up.error is error
