"""Bounds for rejected records."""

from __future__ import annotations

from itertools import product

import pytest
from target_world import World, pipeline

from shared.errors import DestinationError, PartialRunError, RecordError
from target_spark.core import events as ev
from target_spark.core.failures import ErrorBudget
from target_spark.core.load_plans import LoadPlan
from target_spark.core.pipeline import Limits, Pipeline
from target_spark.core.policies import SizeAndAge


@pytest.mark.parametrize(
    ("budget", "records", "rejected", "lines", "at_end", "setting"),
    [
        (ErrorBudget(), 10, 10, 0, True, None),
        (ErrorBudget(max_errors=2), 10, 2, 0, True, None),
        (ErrorBudget(max_errors=2), 10, 3, 0, False, "max_errors"),
        (ErrorBudget(max_errors=0), 1, 1, 0, False, "max_errors"),
        (ErrorBudget(max_error_share=0.1), 999, 500, 0, False, None),
        (ErrorBudget(max_error_share=0.1), 999, 500, 0, True, "max_error_share"),
        (ErrorBudget(max_error_share=0.1), 1000, 101, 0, False, "max_error_share"),
        (ErrorBudget(max_error_share=0.1), 1000, 100, 0, True, None),
        (ErrorBudget(max_error_share=0.0), 0, 0, 0, True, None),
        (ErrorBudget(3, 0.5), 4, 3, 0, True, "max_error_share"),
        (ErrorBudget(3, 0.5), 4, 3, 3, True, "max_error_share"),
        (ErrorBudget(3, 0.5), 4000, 4, 4, False, "max_errors"),
        (ErrorBudget(max_error_share=0.5), 1500, 1300, 700, False, None),
        (ErrorBudget(max_error_share=0.5), 1500, 1300, 500, False, "max_error_share"),
    ],
)
def test_bounds(budget, records, rejected, lines, at_end, setting):
    error = budget.error("s", records, rejected, lines, at_end=at_end)
    if setting is None:
        assert error is None
        return
    assert isinstance(error, RecordError)
    assert f"{rejected} of {records} records were rejected, but `{setting}` is" in str(error)
    assert error.where.stream == "s"


def run(*, goes_on: bool, overwrite: bool = False) -> World:
    """Two flushes of two records each in stream a, with one rejected each; one in stream b."""
    core = Pipeline(
        SizeAndAge(rows=2),
        Limits(),
        run_id="run",
        goes_on=goes_on,
        plan=lambda schema: LoadPlan(overwrites=overwrite and schema.stream == "a"),
        budget=lambda stream: ErrorBudget(max_errors=1 if stream == "a" else None),
    )
    w = World(core, overwrite=frozenset("a") if overwrite else False)
    for name in "ab":
        w.schema(name)
    for name, count in (("a", 2), ("a", 2), ("b", 1)):
        if w.core.wants_input:
            w.records(name, count)
    w.end()
    while w.works:
        work, action = next(iter(w.works.items()))
        if isinstance(action, ev.Convert):
            w.works.pop(work)
            w.flush_keys[action.flush][action.piece.index] = w._keys(action)
            w.hear(ev.WorkDone(work, 1, 10, 1, 2))
        else:
            w.finish_work(work)
    return w


def test_what_came_before_stays_and_the_rest_is_discarded():
    w = run(goes_on=False)
    assert isinstance(w.clean_up.error, RecordError)
    assert w.durable == {"a": [3, 4]}


def test_the_other_streams_go_on_if_set_so():
    w = run(goes_on=True)
    assert isinstance(w.clean_up.error, PartialRunError)
    assert w.durable == {"a": [3, 4], "b": [7]}


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_table_that_is_replaced_keeps_its_rows(goes_on):
    w = run(goes_on=goes_on, overwrite=True)
    assert "a" not in w.finished
    assert ("b" in w.durable) == goes_on


def test_a_share_is_checked_after_the_last_piece():
    core = pipeline(SizeAndAge(rows=1), parallel=4)
    core._failures.budget = lambda _: ErrorBudget(max_error_share=0.5)
    w = World(core)
    w.schema("a")
    w.records("a", 2)
    w.state()
    w.records("a", 1)
    w.end()
    for rejected in (1, 0, 1):
        work = next(n for n, action in w.works.items() if isinstance(action, ev.Convert))
        action = w.works.pop(work)
        w.flush_keys[action.flush][action.piece.index] = w._keys(action)
        w.hear(ev.WorkDone(work, 1 - rejected, 10, rejected, 1))
    while w.works:
        w.finish_work()
    assert str(w.clean_up.error).startswith("stream 'a': 2 of 3 records were rejected")
    assert w.durable == {"a": [2, 3]}


@pytest.mark.parametrize(("received", "rows"), [(2, 0), (2, 9), (3, 0)])
@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_share_of_what_was_converted_before_the_end(received, rows, goes_on, is_committed):
    core = pipeline(SizeAndAge(rows=5), goes_on=goes_on)
    core._failures.budget = lambda _: ErrorBudget(max_error_share=0.4)
    w = World(core)
    w.schema("a")
    w.batch("a")
    (work,) = w.works
    action = w.works.pop(work)
    w.flush_keys[action.flush][0] = w._keys(action)
    w.state()
    w.hear(ev.WorkDone(work, rows, 10, 1, received))
    if is_committed:
        w.finish_all()
    w.end()
    w.finish_all()
    assert (w.clean_up.error is None) is (received == 3)
    if rows:
        assert len(w.emitted) == 1, "the STATE of the commit, which ran or was durable"


@pytest.mark.parametrize("rejected", [1, 2])
def test_after_failed_work_no_flush_beyond_the_budget_is_begun(rejected):
    core = pipeline(SizeAndAge(rows=2), parallel=2)
    core._failures.budget = lambda _: ErrorBudget(max_errors=1)
    w = World(core)
    for name in "ab":
        w.schema(name)
        w.records(name, 2)
        w.state()
    own, other = (n for n, action in w.works.items() if isinstance(action, ev.Convert))
    w.fail_work(DestinationError("disk"), other)
    action = w.works.pop(own)
    w.flush_keys[action.flush][action.piece.index] = w._keys(action)
    w.hear(ev.WorkDone(own, 2 - rejected, 10, rejected, 2))
    assert [type(action) for action in w.works.values()] == [ev.Commit][: 2 - rejected]
    while w.works:
        w.finish_work()
    assert isinstance(w.clean_up.error, DestinationError)
    assert len(w.emitted) == 2 - rejected


@pytest.mark.parametrize(("keeps", "goes_on"), list(product([True, False], repeat=2)))
def test_lines_that_are_no_records_count(keeps, goes_on):
    core = pipeline(keep_dead_letters=keeps, goes_on=goes_on)
    core._failures.budget = lambda _: ErrorBudget(max_errors=1)
    w = World(core)
    w.schema("a")
    w.schema("b")
    w.bad_line("other")
    w.records("a")
    w.bad_line("a")
    w.state()
    w.finish_all()
    w.records("b")
    w.bad_line("a")
    if core.wants_input:
        w.records("a")
    assert core.wants_input is goes_on
    w.end()
    w.finish_all()
    assert str(w.clean_up.error).count("2 of 2 records were rejected, but `max_errors` is 1")
    assert w.reported == [3, 5, 8]
    assert w.durable["dead letters"] == w.reported * keeps
    assert w.durable["a"] == [4]
    assert w.durable["b"] == [7] * goes_on
    assert len(w.emitted) == 1


@pytest.mark.parametrize(
    ("budget", "overwrite"), [(ErrorBudget(max_error_share=0), False), (ErrorBudget(0), True)]
)
def test_a_stream_of_lines_that_are_no_records(budget, overwrite):
    core = pipeline(keep_dead_letters=True, overwrite=overwrite)
    core._failures.budget = lambda _: budget
    w = World(core, overwrite=overwrite)
    w.schema("a")
    w.bad_line("a")
    assert (w.reported == [2]) is overwrite, "it is a dead letter only if the run goes on"
    w.end()
    w.finish_all()
    assert "1 of 1 records were rejected" in str(w.clean_up.error)
