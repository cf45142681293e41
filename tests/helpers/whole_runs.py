"""Whole runs of the target in the tests' own process and Spark session."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from target_spark.run_settings import TargetConfig
from target_spark.runtime.action_executor import Loads
from target_spark.runtime.run import run_with


class Output:
    """Standard output, kept."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


class NoSpark:
    """A Spark that the test starts and stops."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


def run_target(
    config: TargetConfig, loader: Loads, folder: Path, messages: Iterable[Mapping[str, Any] | str]
) -> list[bytes]:
    """Run the target over messages; texts are sent as they are.

    Returns:
        The lines of standard output.

    Raises:
        SingerSparkError: What ended the run.
    """
    path, output = folder / "input.jsonl", Output()
    texts = (m if isinstance(m, str) else json.dumps(m) for m in messages)
    path.write_text("".join(f"{text}\n" for text in texts))
    fd = os.open(path, os.O_RDONLY)
    try:
        run_with(config, fd, output, loader, NoSpark())  # type: ignore[arg-type]
    finally:
        os.close(fd)
    return output.written
