"""Files of one format, as far as threads of the driver read them without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from shared.engine.engine import Engine, Work
from shared.errors import SourceError, Where
from shared.storage.urls import local_path
from tap_spark.sources.files import paths
from tap_spark.state.stream_plans import (
    DriverBlocks,
    DriverRows,
    Method,
    Resume,
    RowForm,
    StreamPlan,
)
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    import pyarrow as pa

    from tap_spark.sources.files.line_reader import FilePart

MOST_REMOTE_FILES = 100
"""Those of a stream that threads read as a whole: executors wait for more requests at a time."""


class DriverFiles:
    """Files of one format that threads may read, if no bookmark says where.

    Raises:
        SourceError: A local path does not exist.
    """

    def __init__(self, stream: StreamConfig) -> None:
        self.stream = stream
        self.key_properties = stream.key_properties
        self.paths = list(paths.resolve_paths(stream))
        method = stream.replication_method
        self._incremental = method == Method.INCREMENTAL or (
            method is None and stream.replication_key is not None
        )

    @property
    def weight(self) -> float:
        """Return the work of a byte that threads read; 0 if only Spark can. See `Work`."""
        return 0

    def schema_on_driver(self, engine: Engine) -> StructType | None:  # noqa: ARG002
        """See `DriverSource`."""
        return None

    def records_on_driver(
        self,
        plan: StreamPlan,  # noqa: ARG002
        struct: StructType,  # noqa: ARG002
        parts: Sequence[FilePart],  # noqa: ARG002
    ) -> Iterator[pa.StringArray | None] | None:
        """Return the JSON text of each record, in arrays; None if Spark has to read them all.

        Args:
            plan: The stream.
            struct: The columns of the catalog.
            parts: What to read of the files.

        Returns:
            An array that is None means the same as None.
        """
        return None

    def blocks_on_driver(
        self,
        plan: StreamPlan,  # noqa: ARG002
        struct: StructType,  # noqa: ARG002
        parts: Sequence[FilePart],  # noqa: ARG002
    ) -> DriverBlocks | None:
        """Return the rows in blocks; None if Spark has to read them. See `records_on_driver`."""
        return None

    def plain_files(self) -> list[tuple[str, int]]:
        """Return all files with their sizes, if they are plain ones that the driver reaches."""
        try:
            files = paths.list_files(tuple(self.paths))
        except SourceError:
            if self._incremental:
                raise
            return []  # Spark may have credentials of its own.
        remote = sum(local_path(file.url) is None for file in files)
        if remote > MOST_REMOTE_FILES and not self._incremental:
            return []
        if any(file.partitioned or paths.is_read_whole(file.url) for file in files):
            return []
        if any(paths.is_hidden(file.url.rpartition("/")[2]) for file in files):
            return []
        return [(file.url, file.size) for file in files if file.size]

    def read_on_driver(
        self, plan: StreamPlan, form: RowForm | None, engine: Engine
    ) -> DriverRows | None:
        """See `DriverSource.read_on_driver`."""
        self._incremental = plan.method is Method.INCREMENTAL
        if form is None or not self.weight or plan.resume is Resume.REPLICATION_KEY:
            return None
        read_at = datetime.now(timezone.utc)
        parts = [(url, 0, size) for url, size in self.plain_files()]
        rows = self.rows_of(plan, form, engine, parts)
        return None if rows is None else replace(rows, read_at=read_at)

    def rows_of(
        self, plan: StreamPlan, form: RowForm, engine: Engine, parts: Sequence[FilePart]
    ) -> DriverRows | None:
        """Read parts of files; None if Spark has to."""
        size = sum(end - start for _, start, end in parts)
        if plan.source_schema is None or not size:
            return None
        if not engine.takes(Work(plan.stream, size * self.weight)):
            return None
        struct = StructType.fromJson(json.loads(plan.source_schema))
        if form is RowForm.RECORDS:
            records = self.records_on_driver(plan, struct, parts)
            return None if records is None else DriverRows(records)
        blocks = self.blocks_on_driver(plan, struct, parts)
        return None if blocks is None else DriverRows(blocks=blocks)

    @contextmanager
    def naming_paths(self) -> Iterator[None]:
        """Raise an error that names a path without files or bucket, not what Spark says then."""
        try:
            yield
        except Exception as error:
            empty = next((path for path in self.paths if self._is_empty(path)), None)
            if empty is None:
                raise
            hint = "check 'path'; names with '.' or '_' at the start do not count"
            raise self.error("no file matches the path", hint, paths.display(empty)) from error

    def _is_empty(self, path: str) -> bool:
        try:
            return not paths.list_files((path,))
        except SourceError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # no such bucket
                raise
            return False  # Spark may have credentials of its own.

    def option(self, name: str, default: str = "") -> str:
        """Return a reader option; its name may be in upper or lower case."""
        values = [
            value for key, value in self.stream.options.items() if key.lower() == name.lower()
        ]
        return values[-1] if values else default

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean reader option."""
        return self.option(name, str(default)).lower() == "true"

    def error(self, message: str, hint: str = "", file: str | None = None) -> SourceError:
        """Build an error that names this stream."""
        return SourceError(message, where=Where(stream=self.stream.name, file=file), hint=hint)

    def shown_path(self) -> str:
        """Return the path of the settings, for errors."""
        return ", ".join(map(paths.display, self.stream.paths))
