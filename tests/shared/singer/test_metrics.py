"""METRIC lines as the SDK writes them."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from shared.singer.logs import Console, setup_logging
from shared.singer.metrics import (
    BATCH_COUNT,
    JOB_DURATION,
    RECORD_COUNT,
    SYNC_DURATION,
    Counter,
    emit,
    timed,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def points(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    caplog.set_level(logging.INFO)

    def read() -> list[dict[str, Any]]:
        lines = [record.getMessage() for record in caplog.records]
        return [json.loads(line.removeprefix("METRIC: ")) for line in lines if "METRIC" in line]

    yield read


def test_line_of_a_counter(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Counter(RECORD_COUNT, "infinity") as counter:
        counter.increment(2)
    assert caplog.messages == [
        'METRIC: {"type":"counter","metric":"record_count","value":2,'
        f'"tags":{{"stream":"infinity","pid":{os.getpid()},"context":{{}}}}}}'
    ]


def test_counter_writes_each_interval_and_at_the_end(points: Any) -> None:
    clock = Clock()
    counter = Counter(RECORD_COUNT, "s", clock=clock)
    counter.increment(5)
    clock.now += 59
    counter.increment(5)
    assert points() == []
    clock.now += 1
    counter.increment()
    clock.now += 10
    counter.increment(4)
    counter.close()
    assert [point["value"] for point in points()] == [11, 4]
    assert counter.total == 15


def test_counter_of_nothing_says_so_once(points: Any) -> None:
    Counter(BATCH_COUNT, "s").close()
    assert [point["value"] for point in points()] == [0]


def test_nothing_new_at_the_end_is_not_written(points: Any) -> None:
    clock = Clock()
    counter = Counter(RECORD_COUNT, "s", clock=clock, interval=1)
    clock.now += 2
    counter.increment(3)
    counter.close()
    assert [point["value"] for point in points()] == [3]


def test_counter_is_written_when_the_block_fails(points: Any) -> None:
    with pytest.raises(KeyError), Counter(RECORD_COUNT, "s") as counter:
        counter.increment(3)
        raise KeyError
    assert [point["value"] for point in points()] == [3]


def test_more_tags_and_no_stream(points: Any) -> None:
    with Counter(RECORD_COUNT, endpoint="x"):
        pass
    assert points()[0]["tags"] == {"pid": os.getpid(), "context": {}, "endpoint": "x"}


def test_counter_in_threads(points: Any) -> None:
    counter = Counter(RECORD_COUNT, "s", interval=0)
    threads = [
        threading.Thread(target=lambda: [counter.increment() for _ in range(50)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counter.close()
    assert sum(point["value"] for point in points()) == counter.total == 200


def test_timer_of_success(points: Any) -> None:
    clock = Clock()
    with timed(SYNC_DURATION, "s", clock=clock) as seconds:
        clock.now += 1.5
    assert seconds() == 1.5
    assert points() == [
        {
            "type": "timer",
            "metric": "sync_duration",
            "value": 1.5,
            "tags": {"stream": "s", "pid": os.getpid(), "context": {}, "status": "succeeded"},
        }
    ]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_timer_of_failure(points: Any, error: type[BaseException]) -> None:
    with pytest.raises(error), timed(JOB_DURATION):
        raise error
    assert points()[0]["tags"]["status"] == "failed"
    assert "stream" not in points()[0]["tags"]


def test_metric_in_structured_logs() -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        setup_logging("tap-spark", {"LOG_FORMAT": "json"}, Console(stream))
        emit("counter", RECORD_COUNT, 2, "ä")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    data = json.loads(stream.getvalue())
    assert data["message"] == "METRIC"
    assert data["stream_name"] == "ä"
    assert data["metric_info"] == {
        "type": "counter",
        "metric": "record_count",
        "value": 2,
        "tags": {"stream": "ä", "pid": os.getpid(), "context": {}},
    }


def test_names_are_written_readably(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    emit("counter", RECORD_COUNT, 2, 'ä"\n')
    [line] = caplog.messages
    assert "ä" in line
    assert "\n" not in line
