"""Random interleavings of everything that can happen, against a model in memory."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from target_world import Item, World, overwrites, pipeline

from shared.errors import DestinationError, MessageError, TerminatedRunError
from target_spark.core import events as ev
from target_spark.core.policies import SizeAndAge

STREAMS = ["a", "b", "c"]
EDITS = ev.Commit | ev.Activate | ev.DeleteMissing
stream = st.sampled_from(STREAMS)
version = st.sampled_from([None, None, None, 1, 2])
message = st.one_of(
    st.tuples(st.just("records"), stream, st.integers(1, 9), version),
    st.tuples(st.just("records"), stream, st.integers(1, 9), version),
    st.tuples(st.just("schema"), stream, st.sampled_from(["x", "y"])),
    st.tuples(st.just("batch"), stream, st.integers(0, 3), version),
    st.tuples(st.just("version"), stream, st.integers(1, 3)),
    st.tuples(st.just("keys"), stream),
    st.tuples(st.just("state")),
    st.tuples(st.just("state")),
    st.tuples(st.just("tick"), st.sampled_from([0.0, 1.0, 5.0, 30.0])),
    st.tuples(st.just("work"), st.integers(0, 20)),
    st.tuples(st.just("work"), st.integers(0, 20)),
)
rule = st.builds(
    SizeAndAge,
    rows=st.sampled_from([None, 1, 2, 5, 13]),
    size=st.sampled_from([1, 10, 40, 10**9]),
    files=st.sampled_from([1, 2, 1000]),
    seconds=st.sampled_from([0.5, 10.0, 1e9]),
)
limits = st.fixed_dictionaries(
    {
        "parallel": st.integers(1, 3),
        "file_bytes": st.sampled_from([1, 8, 30, 10**9]),
        "file_runs": st.sampled_from([1, 2, 1000]),
        "staged_bytes": st.sampled_from([1, 20, 10**9]),
        "waiting": st.integers(1, 4),
    }
)
BY_STREAM = {"records", "schema", "batch", "version", "keys"}
many = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def play(world: World, script: list[tuple]) -> None:
    existing: set[str] = set()
    for name, *args in script:
        if name == "work":
            if world.works:
                works = list(world.works)
                world.finish_work(works[args[0] % len(works)])
            continue
        if name == "tick":
            world.tick(*args)
            continue
        while not world.core.wants_input:
            if world.core.done:
                return
            assert world.works, "input is held back although nothing is under way"
            world.finish_work()
        if name == "schema":
            existing.add(args[0])
        elif name in {"records", "batch", "version", "keys"} and args[0] not in existing:
            existing.add(args[0])
            world.schema(args[0], "x")
        getattr(world, name)(*args)


overwritten = st.sampled_from([False, True, frozenset("a")])


@many
@given(rule, limits, st.lists(message, max_size=60), overwritten)
def test_everything_received_is_durable_once_in_order_and_state_follows(
    rule, limits, script, overwrite
):
    world = World(pipeline(rule, overwrite=overwrite, **limits), overwrite=overwrite)
    play(world, script)
    world.end()
    world.finish_all()
    world.check_complete()


def play_out(world: World, data: st.DataObject) -> None:
    """End running work, some of it badly, until the run is over."""
    for _ in range(1000):
        if world.core.done:
            return
        work = data.draw(st.sampled_from(list(world.works)))
        if data.draw(st.booleans()):
            world.finish_work(work)
        else:
            world.fail_work(AnotherError("y"), work)
    raise AssertionError("the run does not end")


def check_given_up(world: World) -> None:
    """Check that no aborted work has been committed."""
    committed = {key for keys in world.durable.values() for key in keys}
    for number, _ in world.clean_up.flushes:
        rows = {key for keys in world.flush_keys[number].values() for key in keys}
        assert not rows & committed


@many
@given(rule, limits, st.lists(message, max_size=40), overwritten, st.data())
def test_after_a_signal_nothing_new_begins_and_state_stays_true(
    rule, limits, script, overwrite, data
):
    world = World(pipeline(rule, overwrite=overwrite, **limits), overwrite=overwrite)
    play(world, script)
    error = TerminatedRunError("x")
    world.stop(error)
    assert not world.core.wants_input
    before = len(world.works)
    play_out(world, data)
    assert len(world.works) <= before
    assert world.clean_up.error is error
    check_given_up(world)


@many
@given(rule, limits, st.lists(message, min_size=5, max_size=40), overwritten, st.data())
def test_after_failed_work_only_ready_commits_of_others_begin_and_state_stays_true(
    rule, limits, script, overwrite, data
):
    world = World(pipeline(rule, overwrite=overwrite, **limits), overwrite=overwrite)
    play(world, script)
    assume(world.works)
    error = DestinationError("x")
    work = data.draw(st.sampled_from(list(world.works)))
    action = world.works[work]
    world.fail_work(error, work)
    assert not world.core.wants_input
    begun = len(world.log)
    play_out(world, data)
    if any(overwrites(overwrite, stream) for stream in world.schemas):
        assert not [
            a
            for a in world.log[begun:]
            if isinstance(a, ev.Commit | ev.Activate | ev.DeleteMissing)
        ]
    if not isinstance(action, ev.Convert):
        name = World.stream_of(action)
        later = [
            a
            for a in world.log[begun:]
            if isinstance(a, ev.Commit | ev.Activate | ev.DeleteMissing)
        ]
        assert name not in [World.stream_of(a) for a in later]
    assert world.clean_up.error is error
    check_given_up(world)


@many
@given(rule, limits, st.lists(message, min_size=5, max_size=40), st.data())
def test_what_begins_after_failed_work_is_covered_by_a_state(rule, limits, script, data):
    world = World(pipeline(rule, **limits))
    play(world, script)
    assume(world.works)
    world.fail_work(DestinationError("x"), data.draw(st.sampled_from(list(world.works))))
    while not world.core.done:
        world.finish_work(data.draw(st.sampled_from(list(world.works))))
    states = [n for n, item in enumerate(world.received) if item in world.emitted[-1:]]
    covered = {(i.stream, i.key) for i in world.received[: states[0] if states else 0]
               if isinstance(i, Item)}  # fmt: skip
    durable = {(name, key) for name, keys in world.durable.items() for key in keys}
    assert durable <= covered | world.begun


def check_ended_before(world: World, bad: Item) -> None:
    """Check that the run ended at the STATE before a bad item, and names the first one found."""
    world.check_cut(line_of(bad))
    assert bad.key not in world.durable[bad.stream]
    check_given_up(world)
    if not world.failed_alone:  # Discarded before its conversion, as other input was bad.
        assert str(world.clean_up.error) == "x"
        return
    assert world.clean_up.error in world.failed_alone
    assert line_in(world.clean_up.error) == min(map(line_in, world.failed_alone))


def line_in(error: BaseException) -> object:
    key = str(error).rpartition(" bad ")[2]
    return line_of(Item("", int(key) if key.isdigit() else key, 0))


@many
@given(rule, limits, st.lists(message, min_size=5, max_size=60), st.booleans(), st.data())
def test_bad_records_and_files_end_the_input_before_the_first_of_them(
    rule, limits, script, ends, data
):
    """Found while input still comes or after its end, in any order, beside bad input or not."""
    world = World(pipeline(rule, **limits))
    keys = loaded_by(script)
    assume(keys)
    world.bad = data.draw(st.sets(st.sampled_from(keys), min_size=1, max_size=4))
    play(world, script)
    if not world.core.done:
        world.hear(ev.EndOfInput() if ends else ev.BadInput(MessageError("x")))
    for _ in range(1000):
        if world.core.done:
            break
        world.finish_work(data.draw(st.sampled_from(list(world.works))))
    heard = [item for item in world.received if key_of(item) in world.bad]
    check_ended_before(world, heard[0])


def loaded_by(script: list[tuple]) -> list[object]:
    """Return lines of records and names of files."""
    world = World(pipeline())
    play(world, script)
    return [key for key in map(key_of, world.received) if isinstance(key, int | str)]


def key_of(item: Item | bytes) -> object:
    return item.key if isinstance(item, Item) else None


def line_of(item: Item | bytes) -> object:
    """Return the line that a record or a file came in."""
    key = key_of(item)
    return int(key[1:].partition("-")[0]) if isinstance(key, str) else key


@many
@given(rule, limits, st.lists(message, max_size=60))
def test_bad_input_ends_the_run_at_the_state_before_it(rule, limits, script):
    world = World(pipeline(rule, **limits))
    play(world, script)
    error = MessageError("x")
    world.bad_input(error)
    assert not world.core.wants_input
    world.finish_all()
    world.check_cut()
    assert world.clean_up.error is error
    check_given_up(world)


@many
@given(rule, limits, st.lists(message, max_size=40), st.data())
def test_work_that_fails_after_bad_input_leaves_state_true(rule, limits, script, data):
    world = World(pipeline(rule, **limits))
    play(world, script)
    error = MessageError("x")
    world.bad_input(error)
    play_out(world, data)
    assert world.clean_up.error is error
    check_given_up(world)


never = SizeAndAge(size=None, files=None, seconds=1e9)


@many
@given(st.integers(1, 3), st.lists(message, max_size=60), st.none() | st.data())
def test_what_no_rule_has_closed_ends_exactly_at_the_state_before_bad_input(parallel, script, data):
    """Neither other schemas, versions, activations nor keys leave something behind that STATE.

    Bad records are those of one stream: at its end, streams do not wait for each other.
    """
    if data is not None:
        script = [(name, "a", *rest[1:]) if name in BY_STREAM else (name, *rest)
                  for name, *rest in script]  # fmt: skip
    world = World(pipeline(never, parallel=parallel, waiting=1000))
    if data is not None:
        keys = loaded_by(script)
        assume(keys)
        world.bad = {data.draw(st.sampled_from(keys))}
    play(world, script)
    if not world.core.done:
        world.hear(ev.BadInput(MessageError("x")) if data is None else ev.EndOfInput())
    while not world.core.done:
        world.finish_work(max(world.works) if data and data.draw(st.booleans()) else None)
    world.begun.clear()
    heard = [item for item in world.received if key_of(item) in world.bad]
    world.check_cut(*map(line_of, heard))


@many
@given(limits, st.lists(message, max_size=40), st.data())
def test_bad_input_never_replaces_a_table(limits, script, data):
    world = World(pipeline(SizeAndAge(rows=2), overwrite=True, **limits), overwrite=True)
    play(world, script)
    error = MessageError("x")
    world.bad_input(error)
    play_out(world, data)
    assert world.finished == set()
    assert world.clean_up.error is error


class AnotherError(Exception):
    pass


@many
@given(st.lists(message, max_size=30), st.sampled_from(["records", "batch", "version", "keys"]))
def test_a_message_before_its_schema_stops_the_run(script, kind):
    world = World(pipeline(SizeAndAge(rows=2)))
    play(world, script)
    while not world.core.wants_input:
        world.finish_work()
    line = world.line + 1
    world._note_begun()
    getattr(world, kind)("unknown", *([] if kind == "keys" else [1]))
    world.finish_all()
    assert world.clean_up is not None
    error = world.clean_up.error
    assert isinstance(error, MessageError)
    assert (error.where.stream, error.where.line) == ("unknown", line)
    world.received = [
        i for i in world.received if not (isinstance(i, Item) and i.stream == "unknown")
    ]
    world.check_cut()


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_empty_input_ends_at_once(overwrite):
    world = World(overwrite=overwrite)
    world.end()
    world.check_complete()
    assert not world.core.has_streams
