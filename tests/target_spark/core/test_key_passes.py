"""KEYS messages between the other messages of a stream; the model has them, too."""

from __future__ import annotations

import pytest
from target_world import World, pipeline

from shared.errors import DifferenceError, MessageError, SettingsError, Where
from target_spark.core import events as ev
from target_spark.core.load_plans import StreamSchema


def test_keys_come_after_the_rows_before_them_and_hold_back_the_state_after_them() -> None:
    world = World()
    world.schema("a")
    world.records("a", 3)
    world.state()
    world.keys("a")
    world.state()
    world.records("a")
    world.end()
    while not any(isinstance(work, ev.DeleteMissing) for work in world.works.values()):
        assert not world.passes
        world.finish_work()
    assert (len(world.durable["a"]), len(world.emitted)) == (3, 1)
    assert world.deleted == []
    world.finish_all()
    world.check_complete()


def test_a_deletion_that_is_refused_withholds_the_state_after_it() -> None:
    world = World()
    world.schema("a")
    world.records("a")
    world.state()
    world.keys("a")
    world.state()
    world.finish_work()
    world.finish_work()
    error = DifferenceError("too many")
    world.fail_work(error)
    assert world.clean_up == ev.CleanUp(error, ())
    assert len(world.emitted) == 1
    assert world.deleted == []


def test_a_stream_whose_deletion_is_refused_ends_alone() -> None:
    world = World(pipeline(goes_on=True))
    world.schema("a")
    world.schema("b")
    world.keys("a")
    world.state()
    world.fail_work(DifferenceError("too many"))
    world.records("b")
    world.end()
    world.finish_all()
    assert (world.failures, len(world.durable["b"])) == (["a"], 1)


def test_an_announcement_is_checked_before_anything_is_loaded() -> None:
    def refuse(schema: StreamSchema) -> None:
        raise SettingsError("no", where=Where(stream=schema.stream))

    for goes_on in (False, True):
        world = World(pipeline(goes_on=goes_on))
        world.core.check_keys = refuse
        world.schema("a")
        world.hear(ev.KeysSeen("a", None, (), 2))
        world.line += 1
        assert world.core.wants_input is goes_on
        if goes_on:
            world.records("a")
            world.end()
        assert world.clean_up is not None
        assert world.works == {}


def test_keys_need_a_schema() -> None:
    world = World()
    world.keys("a")
    assert world.clean_up is not None
    assert isinstance(world.clean_up.error, MessageError)
    with pytest.raises(AssertionError):
        world.check_complete()
