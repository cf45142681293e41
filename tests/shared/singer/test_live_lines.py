"""Lines of running streams on a terminal, and two programs that share it."""

from __future__ import annotations

import io
import os
import pty
import threading
from collections.abc import Iterator

import pytest
from test_logs import Clock, Terminal

from shared.singer import metrics
from shared.singer.logs import Console
from shared.singer.metrics import LiveLines, Progress, StreamProgress, lines_of, lock_terminal


def progress(label: str, rows: int, clock: Clock, *, commits: bool = False) -> Progress:
    one = Progress(label, live=LiveLines(Console(io.StringIO())), clock=clock)
    clock.now += 1
    one.add(rows, rows * 100)
    if commits:
        one.committed()
    return one


def test_text() -> None:
    clock = Clock()
    one = progress("orders", 12_000, clock)
    assert one.text(clock.now + 1, 80) == "orders: 12,000 rows, 6,000 rows/s, 1.2 MB"
    one.committed()
    clock.now += 12
    assert one.text(clock.now, 80).endswith(", 1.2 MB, last commit 12 s ago")


@pytest.mark.parametrize("width", [79, 50, 20])
def test_lines_fit_into_the_width(width: int) -> None:
    clock = Clock()
    line = progress("a\x1b[2Jb" + "long" * 40, 12_000, clock, commits=True).text(clock.now, width)
    assert len(line) <= width
    assert line.startswith("a?[2J")
    assert width < 50 or "12,000 rows" in line


def test_those_that_moved_last_are_shown_in_order() -> None:
    clock = Clock()
    running = [progress(f"s{number}", 1, clock) for number in range(30)]
    running[3].add(1)
    lines = lines_of(running, clock.now, 79, 24)
    names = [line.partition(":")[0] for line in lines]
    assert names == ["s3", *(f"s{number}" for number in range(22, 30)), "and 21 more streams"]
    assert len(lines_of(running, clock.now, 79, 5)) == 3
    assert lines_of([Progress("idle", clock=clock)], clock.now, 79, 24) == []


def test_log_lines_take_the_place_of_live_lines() -> None:
    stream = Terminal()
    console = Console(stream)
    console.suit("target-spark", {}, wants_json=False)
    console.show(["a: 1 rows", "b: 2 rows"])
    console.write_line("a log line")
    console.write_line("another")
    console.show(["a: 2 rows"])
    with console.apart():
        stream.write("{}\n")
    assert stream.getvalue() == (
        "\r\x1b[Ja: 1 rows\nb: 2 rows\x1b[1A\r\r\x1b[Ja log line\n\r\x1b[Janother\n"
        "\r\x1b[Ja: 2 rows\r\r\x1b[J{}\n"
    )


@pytest.fixture
def consoles() -> Iterator[tuple[Console, Console]]:
    """Two programs on one terminal, which share the description of their standard error."""
    ours, theirs = pty.openpty()
    streams = [os.fdopen(os.dup(theirs), "w") for _ in range(2)]
    created = [Console(stream) for stream in streams]
    for console in created:
        console.suit("target-spark", {}, wants_json=False)
    yield created[0], created[1]
    for stream in streams:
        stream.close()
    os.close(ours)
    os.close(theirs)


def test_one_program_shows_live_lines_at_a_time(consoles: tuple[Console, Console]) -> None:
    first = lock_terminal(consoles[0])
    assert first is not None
    assert lock_terminal(consoles[1]) is None
    os.close(first)
    second = lock_terminal(consoles[1])
    assert second is not None
    os.close(second)
    assert lock_terminal(Console(io.StringIO())) is None


def test_lines_are_drawn_while_streams_run_and_removed_then(
    consoles: tuple[Console, Console], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "INTERVAL_SECONDS", 0.001)
    drawn, shown = threading.Event(), []
    console = consoles[0]
    show = console.show

    def note(lines: list[str]) -> None:
        shown.append(list(lines))
        show(lines)
        drawn.set()

    monkeypatch.setattr(console, "show", note)
    streams = StreamProgress(LiveLines(console))
    streams.of("a").add(3, 10)
    streams.of("b").add(4, 10)
    assert drawn.wait(10)
    streams.close()
    streams.close()
    assert shown[-1][0].startswith("a: 3 rows")
    assert all(thread.name != "live-lines" for thread in threading.enumerate())
    terminal = lock_terminal(consoles[1])
    assert terminal is not None
    os.close(terminal)


def test_a_line_ends_while_another_one_begins(
    consoles: tuple[Console, Console], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "INTERVAL_SECONDS", 0.001)
    draws, goes_on = threading.Event(), threading.Event()

    def draw(_: list[str]) -> None:
        draws.set()
        goes_on.wait(10)

    monkeypatch.setattr(consoles[0], "show", draw)
    live = LiveLines(consoles[0])
    first, second = Progress("a", live=live), Progress("b", live=live)
    for one in (first, second):
        one.add(1)
    live.enter(first)
    assert draws.wait(10)
    leaving = threading.Thread(target=first.close, daemon=True)
    leaving.start()
    while live._thread is not None:
        leaving.join(0.001)
    live.enter(second)
    goes_on.set()
    leaving.join(10)
    assert not leaving.is_alive()
    second.close()


def test_nobody_watches() -> None:
    streams = StreamProgress(LiveLines(Console(io.StringIO())))
    streams.of("a").add(1)
    assert all(thread.name != "live-lines" for thread in threading.enumerate())
    streams.close()
