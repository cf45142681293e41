"""When STATE is written, with a clock that the tests move."""

from __future__ import annotations

import itertools
import json
import threading
from typing import Any

from tap_spark.send.line_output import LONG_BYTES, Change, StateWriter


def to(state: dict[str, Any]) -> Change:
    return lambda _: state


class Bench:
    def __init__(self, state: dict[str, Any], interval: float = 10) -> None:
        self.now = 100.0
        self.lines: list[bytes] = []
        self.pace = StateWriter(state, self.lines.append, interval, lambda: self.now)

    @property
    def values(self) -> list[Any]:
        assert all(line.endswith(b"\n") for line in self.lines)
        return [json.loads(line)["value"] for line in self.lines]


def test_inside_the_interval_nothing_is_written() -> None:
    bench = Bench({})
    bench.now += 9.9
    bench.pace.update(to({"n": 1}))
    assert bench.values == []
    assert bench.pace.state == {"n": 1}


def test_after_the_interval_the_newest_state_is_written() -> None:
    bench = Bench({})
    bench.pace.update(to({"n": 1}))
    bench.now += 10
    bench.pace.update(to({"n": 2}))
    bench.pace.update(to({"n": 3}))
    assert bench.values == [{"n": 2}]
    bench.now += 10
    bench.pace.update(to({"n": 4}))
    assert bench.values == [{"n": 2}, {"n": 4}]


def test_the_same_state_is_written_once() -> None:
    bench = Bench({"n": 1})
    bench.now += 99
    bench.pace.update(to({"n": 1}))
    assert bench.values == []
    bench.pace.update(to({"n": 2}))
    bench.now += 99
    bench.pace.update(to({"n": 2}))
    assert bench.values == [{"n": 2}]


def test_every_chunk_with_an_interval_of_nothing() -> None:
    bench = Bench({}, interval=0)
    for number in range(3):
        bench.pace.update(to({"n": number}))
    assert bench.values == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_stream_ends_with_its_state_changed_or_not() -> None:
    bench = Bench({"n": 1})
    bench.pace.finish(to({"n": 1}))
    bench.pace.finish(to({"n": 1}))
    assert bench.values == [{"n": 1}, {"n": 1}]


def test_the_end_of_a_stream_restarts_the_interval() -> None:
    bench = Bench({})
    bench.now += 9
    bench.pace.finish(to({"n": 1}))
    bench.now += 9
    bench.pace.update(to({"n": 2}))
    assert bench.values == [{"n": 1}]


def test_adopting_writes_nothing() -> None:
    bench = Bench({}, interval=0)
    bench.pace.adopt(to({"n": 1}))
    assert bench.values == []
    assert bench.pace.state == {"n": 1}


def test_states_of_many_threads_never_go_back() -> None:
    lines: list[bytes] = []
    pace = StateWriter({}, lines.append, 0)

    def count(name: str) -> None:
        for _ in range(200):
            pace.update(lambda state: {**state, name: state.get(name, 0) + 1})

    threads = [threading.Thread(target=count, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pace.state == {"a": 200, "b": 200, "c": 200}
    values = [json.loads(line)["value"] for line in lines]
    assert values[-1] == pace.state
    for before, after in itertools.pairwise(values):
        assert all(after.get(name, 0) >= number for name, number in before.items())


def test_a_long_state_is_written_once_a_second_and_at_the_end() -> None:
    bench = Bench({"long": "x" * LONG_BYTES})
    for number in range(5):
        bench.pace.finish(lambda state, n=number: {**state, "n": n})  # type: ignore[misc]
        bench.now += 0.4
    assert [value["n"] for value in bench.values] == [3]
    bench.pace.end()
    bench.pace.end()
    assert [value["n"] for value in bench.values] == [3, 4]


def test_the_end_writes_nothing_twice() -> None:
    bench = Bench({})
    bench.pace.finish(to({"n": 1}))
    bench.pace.end()
    assert bench.values == [{"n": 1}]
