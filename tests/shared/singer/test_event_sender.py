"""Events by HTTP: in order, in the background, and never at the expense of the run."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from http_receiver import Receiver, receiving
from own_logs import own_records

from shared.singer.datasets import Dataset
from shared.singer.lineage import MOST_WAITING, EventSender
from shared.singer.run_summary import (
    OpenLineageSettings,
    OpenTelemetrySettings,
    RunSummary,
    observers_of,
)

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def test_events_arrive_in_order(receiver: Receiver) -> None:
    sender = EventSender(receiver.url, {"Authorization": "Bearer key"})
    for number in range(3):
        sender.send({"n": number})
    sender.flush(10)
    assert [one.json["n"] for one in receiver.posted] == [0, 1, 2]
    assert receiver.posted[0].headers["authorization"] == "Bearer key"
    assert receiver.posted[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize("status", [None, 500, 302])
def test_a_receiver_that_fails_is_one_warning(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, status: int | None
) -> None:
    receiver.status, receiver.headers = status or 200, {"Location": f"{receiver.url}/else"}
    sender = EventSender(receiver.url if status else NOBODY, {})
    for number in range(3):
        sender.send({"n": number})
    sender.flush(10)
    assert len(caplog.records) == 1
    assert "OpenLineage events are lost: http://127.0.0.1" in caplog.text
    assert [one.path for one in receiver.posted] == ["/"] * (3 if status else 0)


def test_a_receiver_that_hangs_delays_nobody(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers.clear()
    started, sender = time.monotonic(), EventSender(receiver.url, {})
    for number in range(MOST_WAITING * 3):
        sender.send({"n": number})
    sender.flush(0.1)
    assert time.monotonic() - started < 2
    assert "no answer within 0.1 s" in caplog.text
    receiver.answers.set()
    sender.flush(60)
    # What waited is bounded; the newest is kept.
    assert MOST_WAITING <= len(receiver.posted) <= MOST_WAITING + 1
    assert receiver.posted[-1].json["n"] == MOST_WAITING * 3 - 1


def test_who_is_told(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    facts, none = RunSummary("tap-spark").as_dict, OpenLineageSettings()
    off = OpenTelemetrySettings()
    url = {"OPENLINEAGE_URL": receiver.url}
    assert not observers_of("tap-spark", none, off, {}, facts)
    assert not observers_of("tap-spark", none, off, {**url, "OPENLINEAGE_DISABLED": "true"}, facts)
    assert not own_records(caplog)
    assert not observers_of("tap-spark", none, off, {"OPENLINEAGE_URL": "kafka://x"}, facts)
    assert "OpenLineage is off: its URL must begin with http" in caplog.text
    assert (
        len(observers_of("tap-spark", none, off, {**url, "OPENLINEAGE_PARENT_ID": "?"}, facts)) == 1
    )
    assert "OPENLINEAGE_PARENT_ID is ignored" in caplog.text
    supplied = OpenLineageSettings(url=receiver.url)
    assert len(observers_of("tap-spark", supplied, off, {}, facts)) == 1


def test_nothing_is_imported_if_nobody_is_told() -> None:
    code = (
        "import sys; import shared.singer.run_summary, tap_spark.config\n"
        "from shared.singer.run_summary import *\n"
        "config = tap_spark.config.TapConfig()\n"
        "assert not observers_of('tap-spark', config.openlineage, config.opentelemetry, {}, dict)\n"
        "print(*sys.modules)"
    )
    actual = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    unwanted = {"shared.singer.lineage", "urllib.request", "opentelemetry", "openlineage"}
    assert not unwanted & set(actual.stdout.split())


def test_an_observer_that_fails_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def __getattr__(self, name: str) -> None:
            raise ZeroDivisionError(name)

    summary = RunSummary("tap-spark")
    summary.observe([Broken()])  # type: ignore[list-item]
    with caplog.at_level(logging.WARNING):
        summary.add("s", sent=1)
        summary.end(summary.as_dict(None))
    assert caplog.messages == ["Broken is off: ZeroDivisionError('counts')"]


def test_a_dataset_without_a_name_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> list[Dataset]:
        raise ValueError("no name")

    summary, reported = RunSummary("tap-spark"), SeenDatasets()
    summary.uses("s", broken)
    assert not own_records(caplog)  # without observers, nobody asks
    summary.observe([reported])
    summary.uses("s", broken)
    summary.uses("s", lambda: [Dataset("t")])
    assert reported.names == ["t"]
    assert caplog.messages == [
        "stream 's': its datasets have no name in lineage: ValueError('no name')"
    ]


class SeenDatasets:
    """Keeps the names of datasets."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def uses(self, stream: str, datasets: Iterable[Dataset], *, is_output: bool) -> None:
        self.names += [one.name for one in datasets]

    def counts(self, stream: str, counts: Mapping[str, float]) -> None:
        pass

    def ended(self, facts: Mapping[str, Any]) -> None:
        pass
