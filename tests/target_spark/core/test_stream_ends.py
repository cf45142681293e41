"""A table is replaced only by a stream that the input shows to be complete."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from target_world import World, pipeline

from shared.errors import PartialRunError
from target_spark.core.flushes import StreamEnd
from target_spark.core.policies import SizeAndAge

Story = Callable[[World], object]


def reported(*stories: Story, goes_on: bool = False) -> World:
    """Return a world at its end, in which stream `a` came as told."""
    core = pipeline(SizeAndAge(rows=1), overwrite=frozenset("a"), replaces=True, goes_on=goes_on)
    world = World(core, overwrite=frozenset("a"))
    world.schema("a")
    for story in stories:
        story(world)
    world.finish_all()
    world.end()
    world.finish_all()
    return world


def rows(world: World) -> None:
    world.records("a", 2)


def versioned(world: World) -> None:
    world.records("a", 2, version=7)


def files(world: World) -> None:
    world.batch("a", version=7)


def activated(world: World) -> None:
    world.version("a", 7)


def older(world: World) -> None:
    world.version("a", 6)


def state(world: World) -> None:
    world.state()


@pytest.mark.parametrize(
    "stories",
    [
        (rows, state),
        (state, rows, rows, state),
        (rows,),
        (state,),
        (versioned, activated),
        (files, activated, state),
        (activated, versioned, state),
        (activated, versioned, activated, state),
        (activated, state),
    ],
)
def test_complete(stories: tuple[Story, ...]) -> None:
    world = reported(*stories)
    assert world.clean_up.error is None
    assert world.finished == {"a"}
    world.check_complete()


@pytest.mark.parametrize(
    ("stories", "gap"),
    [
        ((), "nothing came after its SCHEMA"),
        ((activated,), "nothing came after its SCHEMA"),
        ((state, rows), "no STATE came after its last record"),
        ((rows, state, rows), "no STATE came after its last record"),
        ((activated, versioned), "no STATE came after its last record"),
        ((versioned,), "its records came without their ACTIVATE_VERSION"),
        ((versioned, state), "its records came without their ACTIVATE_VERSION"),
        ((files, state), "its records came without their ACTIVATE_VERSION"),
        ((older, versioned, state), "its records came without their ACTIVATE_VERSION"),
        ((versioned, activated, state, versioned), "no STATE came after its last record"),
    ],
)
@pytest.mark.parametrize("goes_on", [False, True])
def test_unfinished(stories: tuple[Story, ...], gap: str, goes_on: bool) -> None:
    world = reported(*stories, goes_on=goes_on)
    assert world.finished == set()
    assert isinstance(world.clean_up.error, PartialRunError)
    assert f"stream 'a': the input ended, but {gap}" in str(world.clean_up.error)
    assert world.failures == ["a"]


def test_a_stream_that_the_tap_reports_to_have_failed() -> None:
    world = reported(rows, lambda world: world.schema("a", failed=True), state)
    assert world.finished == set()
    assert "the tap reports that the stream failed" in str(world.clean_up.error)


def test_a_stream_that_fails_before_its_first_record() -> None:
    world = reported(lambda world: world.schema("a", failed=True), state)
    assert world.finished == set()


def test_other_streams_are_loaded() -> None:
    def other(world: World) -> None:
        world.state()
        world.schema("b")
        world.records("b", 3)
        world.state()
        world.records("a")

    world = reported(rows, other)
    assert world.finished == set()
    assert [line for line in world.durable["b"] if isinstance(line, int)] == [6, 7, 8]
    assert world.emitted == []


def test_a_state_within_a_message_of_rows_does_not_count() -> None:
    end = StreamEnd(1)
    end.add_rows(5, None)
    assert end.gap(4) is not None
    assert end.gap(6) is None
