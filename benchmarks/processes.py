"""Run commands joined by pipes and measure wall time and peak memory of their process trees."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

Command = Sequence[str]
SAMPLE_SECONDS = 0.25
OWN_SAMPLE_SECONDS = 0.02
ROOT = Path(__file__).parents[1]
_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Measured:
    """The result of one run.

    Attributes:
        seconds: Wall time.
        peak_mib: For each command the peak memory of its process tree.
        own_mib: The peak of its first process alone: the driver, without Java and workers.
    """

    seconds: float
    peak_mib: tuple[float, ...]
    own_mib: tuple[float, ...] = ()


def tree_mib(pid: int) -> float:
    """Return the memory of a process tree in MiB; shared pages count once."""
    total = 0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error, OSError):
                total += process.memory_full_info().pss
    return total / 2**20


def own_mib(pid: int) -> float:
    """Return the most memory in MiB that one process has had so far."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return float(match[1]) / 2**10 if match else 0.0


class PeakWatch(threading.Thread):
    """Samples the memory of process trees until it is stopped."""

    def __init__(self, pids: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self.pids = pids
        self.peaks = [0.0] * len(pids)
        self.own = [0.0] * len(pids)
        self.done = threading.Event()

    def run(self) -> None:
        next_trees = 0.0
        while not self.done.wait(OWN_SAMPLE_SECONDS):
            # Cheap, so that the peak of a short run is not missed.
            self.own = _greater(self.own, map(own_mib, self.pids))
            if time.monotonic() >= next_trees:
                self.peaks = _greater(self.peaks, map(tree_mib, self.pids))
                next_trees = time.monotonic() + SAMPLE_SECONDS
        self.peaks = _greater(self.peaks, self.own)


def _greater(before: Iterable[float], now: Iterable[float]) -> list[float]:
    return [max(pair) for pair in zip(before, now, strict=True)]


def _keep_orphans() -> None:
    """Become the parent of descendants whose parent ends, so that their memory counts."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run_piped(commands: Sequence[Command], folder: Path, env: Mapping[str, str] = {}) -> Measured:
    """Run `commands[0] | commands[1] | …` in `folder`; the last one's output is discarded.

    Raises:
        RuntimeError: A command failed; the text holds the end of its log.
    """
    start = time.monotonic()
    running: list[subprocess.Popen[bytes]] = []
    logs = [folder / f"log-{number}.txt" for number in range(len(commands))]
    for number, command in enumerate(commands):
        last = number == len(commands) - 1
        with logs[number].open("wb") as log:
            running.append(
                subprocess.Popen(
                    command,
                    stdin=running[-1].stdout if running else subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL if last else subprocess.PIPE,
                    stderr=log,
                    cwd=folder,
                    env={**os.environ, "PYTHONPATH": str(ROOT), **env},
                    preexec_fn=_keep_orphans,  # noqa: PLW1509
                )
            )
        if number and (before := running[number - 1].stdout):
            before.close()
    watch = PeakWatch([process.pid for process in running])
    watch.start()
    codes = [process.wait() for process in running]
    seconds = time.monotonic() - start
    watch.done.set()
    watch.join()
    if any(codes):
        tails = "\n".join(log.read_text()[-2000:] for log in logs)
        raise RuntimeError(f"exit codes {codes} of {commands}\n{tails}")
    return Measured(seconds, tuple(watch.peaks), tuple(watch.own))


def module(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this project with this Python."""
    return [sys.executable, "-m", name, *arguments]


def interleaved(
    runs: int, cases: Mapping[str, Callable[[], Measured]]
) -> dict[str, list[Measured]]:
    """Run all cases `runs` times in turn, so that a slow minute affects them alike."""
    results: dict[str, list[Measured]] = {name: [] for name in cases}
    for number in range(runs):
        for name, case in cases.items():
            measured = case()
            results[name].append(measured)
            print(f"  run {number + 1}: {name}: {describe([measured])}", flush=True)
    return results


def median_seconds(results: Sequence[Measured]) -> float:
    """Return the median wall time of several runs."""
    return statistics.median(result.seconds for result in results)


def describe(results: Sequence[Measured]) -> str:
    """Return the median wall time and peak memory as text."""
    peaks = [max(result.peak_mib[i] for result in results) for i in range(len(results[0].peak_mib))]
    memory = " + ".join(f"{peak:.0f}" for peak in peaks)
    return f"{median_seconds(results):.1f} s, peak {memory} MiB"
