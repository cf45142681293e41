"""Both programs in this process, with the methods that the Meltano SDK's test runners call."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

import pytest
from singer_sdk.exceptions import (
    InvalidRecord,
    MissingKeyPropertiesError,
    RecordsWithoutSchemaException,
)

from shared.engine.engine import Engine
from shared.errors import MessageError, RecordError
from tap_spark import cli as tap_cli
from tap_spark.config import tap_config
from tap_spark.plan.discovery import catalog_for
from tap_spark.send import sync, trials
from target_spark import cli as target_cli
from target_spark.config import target_config
from target_spark.load.loader import Loader
from target_spark.receive.run import run_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Session:
    """Stands for the start of Spark: the session is there, and stays."""

    spark: SparkSession

    def start(self) -> None:
        """Nothing to do."""

    def get(self) -> SparkSession:
        return self.spark

    def running(self) -> SparkSession:
        return self.spark

    def stop(self) -> None:
        """Nothing to do."""


class Output:
    """Takes what a program writes to standard output."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def text(self) -> str:
        return b"".join(self.written).decode()


class SparkTarget:
    """target-spark as `TargetTestRunner` creates and runs it."""

    def __init__(self, config: Mapping[str, Any], session: Session) -> None:
        self.config = target_config(config)
        self._session = session
        self._lines: list[str] = []

    def print_version(self) -> None:
        assert target_cli.main(["--version"]) == 0

    def print_about(self, output_format: str = "text") -> None:
        assert target_cli.main(["--about", "--format", output_format]) == 0

    def process_lines(self, lines: Iterable[str]) -> None:
        self._lines += lines

    def process_endofpipe(self) -> None:
        """Load what has come, and print the STATE messages."""
        output = Output()
        with tempfile.TemporaryFile() as file:
            file.write("".join(self._lines).encode())
            file.seek(0)
            try:
                self._run(file, output)
            except (MessageError, RecordError) as error:
                raise _as_in_the_sdk(error) from error
            finally:
                sys.stdout.write(output.text())

    def _run(self, file: IO[bytes], output: Output) -> None:
        engine = Engine.of(self._session.get)
        loader = Loader(self.config, engine)
        run_with(self.config, os.dup(file.fileno()), output, loader, engine)  # type: ignore[arg-type]


def _as_in_the_sdk(error: MessageError | RecordError) -> Exception:
    """Give the exception that the SDK has for an error."""
    text = str(error)
    if isinstance(error, MessageError):
        return RecordsWithoutSchemaException(text) if "before the SCHEMA" in text else error
    return MissingKeyPropertiesError(text) if "key property" in text else InvalidRecord(text, {})


class SparkTap:
    """tap-spark as `TapTestRunner` creates and runs it."""

    def __init__(
        self,
        config: Mapping[str, Any],
        session: Session,
        catalog: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = tap_config(config)
        self._session = session
        self.catalog_dict = dict(catalog or catalog_for(session.spark, self.config))

    def print_version(self) -> None:
        assert tap_cli.main(["--version"]) == 0

    def print_about(self, output_format: str = "text") -> None:
        assert tap_cli.main(["--about", "--format", output_format]) == 0

    def run_discovery(self) -> str:
        self.catalog_dict = catalog_for(self._session.spark, self.config)
        return json.dumps(self.catalog_dict)

    def run_connection_test(self) -> bool:
        return bool(self._messages(trials.run_test, self.config, "all", self.catalog_dict))

    def run_sync_dry_run(self, dry_run_record_limit: int | None = None) -> bool:
        """Print the messages of a whole sync: the limit is only there to save time."""
        sys.stdout.write(self._messages(sync.run_sync, self.config, self.catalog_dict, None))
        return True

    @property
    def streams(self) -> dict[str, Any]:
        """What the tests read of the SDK's streams."""
        return {entry["stream"]: _stream(entry) for entry in self.catalog_dict["streams"]}

    def _messages(self, call: Any, *args: Any) -> str:
        output = Output()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sync, "engine_of", lambda *_, **__: Engine.of(self._session.get))
            call(*args, output)
        return output.text()


def _stream(entry: Mapping[str, Any]) -> Any:
    outgoing = SimpleNamespace(transformed_schema=entry["schema"])
    return SimpleNamespace(
        name=entry["stream"],
        schema=entry["schema"],
        primary_keys=entry["key_properties"],
        stream_maps=[outgoing],
    )
