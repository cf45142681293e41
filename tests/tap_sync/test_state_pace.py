"""When STATE goes out, with a clock that only moves when told."""

from __future__ import annotations

import json
from typing import Any

from tap_spark.state_pace import StatePace


class Bench:
    def __init__(self, state: dict[str, Any], interval: float = 10) -> None:
        self.now = 100.0
        self.lines: list[bytes] = []
        self.pace = StatePace(state, self.lines.append, interval, lambda: self.now)

    @property
    def values(self) -> list[Any]:
        assert all(line.endswith(b"\n") for line in self.lines)
        return [json.loads(line)["value"] for line in self.lines]


def test_inside_the_interval_nothing_goes_out() -> None:
    bench = Bench({})
    bench.now += 9.9
    bench.pace.update({"n": 1})
    assert bench.values == []
    assert bench.pace.state == {"n": 1}


def test_after_the_interval_the_newest_state_goes_out() -> None:
    bench = Bench({})
    bench.pace.update({"n": 1})
    bench.now += 10
    bench.pace.update({"n": 2})
    bench.pace.update({"n": 3})
    assert bench.values == [{"n": 2}]
    bench.now += 10
    bench.pace.update({"n": 4})
    assert bench.values == [{"n": 2}, {"n": 4}]


def test_the_same_state_goes_out_once() -> None:
    bench = Bench({"n": 1})
    bench.now += 99
    bench.pace.update({"n": 1})
    assert bench.values == []
    bench.pace.update({"n": 2})
    bench.now += 99
    bench.pace.update({"n": 2})
    assert bench.values == [{"n": 2}]


def test_every_chunk_with_an_interval_of_nothing() -> None:
    bench = Bench({}, interval=0)
    for number in range(3):
        bench.pace.update({"n": number})
    assert bench.values == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_stream_ends_with_its_state_changed_or_not() -> None:
    bench = Bench({"n": 1})
    bench.pace.finish({"n": 1})
    bench.pace.finish({"n": 1})
    assert bench.values == [{"n": 1}, {"n": 1}]


def test_the_end_of_a_stream_starts_the_interval_anew() -> None:
    bench = Bench({})
    bench.now += 9
    bench.pace.finish({"n": 1})
    bench.now += 9
    bench.pace.update({"n": 2})
    assert bench.values == [{"n": 1}]


def test_adopting_writes_nothing() -> None:
    bench = Bench({}, interval=0)
    bench.pace.adopt({"n": 1})
    assert bench.values == []
    assert bench.pace.state == {"n": 1}
