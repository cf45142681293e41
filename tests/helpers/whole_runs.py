"""Whole runs of the target in the tests' own process and Spark session."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engines import IdleSpark, threads

from shared.engine.engine import Engine
from target_spark.load.loader import Loader
from target_spark.receive.run import run_with
from target_spark.run_settings import TargetConfig


class Output:
    """Standard output, kept."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))


def run_target(
    config: TargetConfig,
    loader: Loader,
    folder: Path,
    messages: Iterable[Mapping[str, Any] | str],
    engine: Engine | None = None,
) -> list[bytes]:
    """Run the target over messages; texts are sent as they are.

    Returns:
        The lines of standard output.

    Raises:
        SingerSparkError: What ended the run.
    """
    output = Output()
    texts = (m if isinstance(m, str) else json.dumps(m) for m in messages)
    run_lines(config, loader, folder, texts, engine or threads(IdleSpark()), output)
    return output.written


def run_lines(
    config: TargetConfig,
    loader: Loader,
    folder: Path,
    lines: Iterable[str],
    engine: Engine,
    output: Output,
) -> None:
    """Do the same, with an output that is there also after an error."""
    path = folder / "input.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    fd = os.open(path, os.O_RDONLY)
    try:
        run_with(config, fd, output, loader, engine)  # type: ignore[arg-type]
    finally:
        os.close(fd)
