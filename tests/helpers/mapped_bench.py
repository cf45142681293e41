"""Both programs in this process, on the tests' session: messages out, messages in, rows back."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from shared.engine.engine import Engine
from shared.singer.stdout import MessageOutput
from tap_spark.config import tap_config
from tap_spark.send import sync, trials
from target_spark.config import target_config
from target_spark.load.loader import Loader
from target_spark.load.mapped_loader import MappedLoader
from target_spark.receive.run import run_with

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]


class Starter:
    """Stands for the start of Spark: the session is there."""

    def __init__(self, spark: SparkSession | None) -> None:
        self.spark = spark
        self.stopped = False

    conf: Mapping[str, str] = {}

    def start(self) -> None:
        """Do nothing."""

    def get(self) -> SparkSession:
        assert self.spark is not None, "Spark was asked for"
        return self.spark

    def context(self) -> None:
        """Return that work takes the session."""

    def running(self) -> SparkSession | None:
        return self.spark

    def stop(self) -> None:
        self.stopped = True


@dataclass
class Loaded:
    """What a target has written, and said."""

    path: Path
    states: list[Any]

    def table(self, stream: str) -> Any:
        return pq.read_table(self.path / stream)

    def rows(self, stream: str, key: str = "id") -> Rows:
        return sorted(self.table(stream).to_pylist(), key=lambda row: str(row[key]))

    @property
    def tables(self) -> list[str]:
        if not self.path.exists():
            return []
        return sorted(p.name for p in self.path.iterdir() if not p.name.startswith("."))


@dataclass
class Bench:
    """A folder of files, and both programs."""

    spark: SparkSession | None
    folder: Path
    patch: pytest.MonkeyPatch
    count: int = 0
    written: list[Path] = field(default_factory=list)

    def csv(self, name: str, text: str) -> str:
        path = self.folder / f"{name}.csv"
        path.write_text(text)
        return str(path)

    def tap(
        self,
        settings: Mapping[str, Any],
        state: Mapping[str, Any] | None = None,
        catalog: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the messages of a run."""
        out = self._output()
        config = tap_config(settings)
        self.patch.setattr(sync, "engine_of", lambda *_, **__: Engine(Starter(self.spark)))
        with out.open("wb") as file:
            output = MessageOutput(os.dup(file.fileno()))
            try:
                sync.run_sync(config, catalog, state, output)
            finally:
                output.close()
        return self.messages()

    def tested(self, settings: Mapping[str, Any], mode: str = "all") -> list[dict[str, Any]]:
        """Return the messages of `--test`."""
        self.patch.setattr(sync, "engine_of", lambda *_, **__: Engine(Starter(self.spark)))
        with self._output().open("wb") as file:
            output = MessageOutput(os.dup(file.fileno()))
            try:
                trials.run_test(tap_config(settings), mode, None, output)
            finally:
                output.close()
        return self.messages()

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages of the last run, also of one that failed."""
        return [json.loads(line) for line in self.written[-1].read_bytes().splitlines()]

    def target(
        self, messages: Sequence[Mapping[str, Any]], settings: Mapping[str, Any] | None = None
    ) -> Loaded:
        """Load messages into a new folder, or the one that the settings name."""
        self.count += 1
        path = self.folder / f"out-{self.count}"
        config = target_config({"path": str(path), **(settings or {})})
        data = self.folder / f"in-{self.count}.jsonl"
        data.write_text("".join(json.dumps(message) + "\n" for message in messages))
        # Without a session threads of the target convert what comes.
        engine = Engine(Starter(self.spark), "auto" if self.spark is None else "spark")
        loader = (MappedLoader if config.transforms.active else Loader)(config, engine)
        out = self._output()
        fd = os.open(data, os.O_RDONLY)
        with out.open("wb") as file:
            output = MessageOutput(os.dup(file.fileno()))
            try:
                run_with(config, fd, output, loader, engine)
            finally:
                output.close()
                os.close(fd)
        return Loaded(Path(config.path), self.messages())

    def _output(self) -> Path:
        self.count += 1
        path = self.folder / f"messages-{self.count}.jsonl"
        self.written.append(path)
        return path


def schema(stream: str, properties: Mapping[str, Any], *keys: str, **more: Any) -> dict[str, Any]:
    node = {"type": "object", "properties": dict(properties), **more}
    return {"type": "SCHEMA", "stream": stream, "schema": node, "key_properties": list(keys)}


def record(stream: str, values: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": stream, "record": dict(values), **more}


def state(value: Any) -> dict[str, Any]:
    return {"type": "STATE", "value": value}


def of_type(messages: Sequence[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [message for message in messages if message["type"] == kind]


def records(messages: Sequence[Mapping[str, Any]], stream: str) -> Rows:
    return [m["record"] for m in of_type(messages, "RECORD") if m["stream"] == stream]


def plain(rows: Rows) -> Rows:
    """Return rows without the columns of record metadata."""
    return [
        {key: value for key, value in row.items() if not key.startswith("_sdc_")} for row in rows
    ]
