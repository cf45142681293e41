"""Both programs as users run them: subprocesses joined by a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared.spark.conf import NO_CODE

TAP = [sys.executable, "-m", "tap_spark.cli"]
TARGET = [sys.executable, "-m", "target_spark.cli"]
TIMEOUT = 300
SPARK = {
    "master": "local[2]",
    "conf": {
        "spark.driver.memory": "700m",
        # The log of a small table needs no more tasks.
        "spark.databricks.delta.snapshotPartitions": "1",
        # Classes for a few rows take longer to compile than expressions to interpret.
        **NO_CODE,
    },
}


@dataclass(frozen=True)
class PipeResult:
    """What came out of `tap | target`."""

    tap_code: int
    target_code: int
    states: Sequence[dict[str, Any]]
    tap_log: str
    target_log: str

    @property
    def state(self) -> dict[str, Any]:
        return self.states[-1]

    def check(self) -> PipeResult:
        assert (self.tap_code, self.target_code) == (0, 0), self.tap_log + self.target_log
        return self


@dataclass
class Programs:
    """Runs the programs in one folder; every configuration is written there as a file."""

    folder: Path
    serial: int = 0
    environ: dict[str, str] = field(default_factory=dict)

    def write(self, name: str, content: Mapping[str, Any]) -> str:
        self.serial += 1
        path = self.folder / f"{self.serial}-{name}.json"
        path.write_text(json.dumps(content))
        return str(path)

    def tap_command(
        self,
        config: Mapping[str, Any],
        state: Mapping[str, Any] | None = None,
        catalog: Mapping[str, Any] | None = None,
    ) -> list[str]:
        command = [*TAP, "--config", self.write("tap", {"spark": SPARK, **config})]
        if state is not None:
            command += ["--state", self.write("state", state)]
        if catalog is not None:
            command += ["--catalog", self.write("catalog", catalog)]
        return command

    def target_command(self, config: Mapping[str, Any]) -> list[str]:
        return [*TARGET, "--config", self.write("target", {"spark": SPARK, **config})]

    def env(self) -> dict[str, str]:
        return {**os.environ, **self.environ}

    def run(
        self, command: Sequence[str], stdin: bytes = b"", timeout: float = TIMEOUT
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            cwd=self.folder,
            env=self.env(),
            timeout=timeout,
            check=False,
        )

    def pipe(
        self,
        tap_config: Mapping[str, Any],
        target_config: Mapping[str, Any],
        state: Mapping[str, Any] | None = None,
        catalog: Mapping[str, Any] | None = None,
    ) -> PipeResult:
        self.serial += 1
        tap_log = self.folder / f"{self.serial}-tap.log"
        with tap_log.open("wb") as log:
            tap = subprocess.Popen(
                self.tap_command(tap_config, state, catalog),
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                env=self.env(),
            )
            target = subprocess.Popen(
                self.target_command(target_config),
                stdin=tap.stdout,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.folder,
                env=self.env(),
            )
            assert tap.stdout is not None
            tap.stdout.close()
            out, err = target.communicate(timeout=TIMEOUT)
            tap_code = tap.wait(timeout=60)
        states = [json.loads(line) for line in out.splitlines()]
        return PipeResult(tap_code, target.returncode, states, tap_log.read_text(), err.decode())
