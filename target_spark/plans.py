"""What the target decided to load: plain data between core, loader and destinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.encodings import Encoding


@dataclass(frozen=True)
class InputFile:
    """One file to load, or a line-aligned part of it.

    Attributes:
        url: Path or fsspec URL that the executors can open.
        encoding: Its format and compression; `singer` is the format of staged RECORD lines.
        rows: Number of rows where known.
        size: Bytes where known.
        line_map: Runs of `(first line in the file, first line of stdin)`, both 1-based, for staged
            RECORD lines; empty for files of BATCH messages.
    """

    url: str
    encoding: Encoding
    rows: int | None = None
    size: int | None = None
    line_map: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class StreamSchema:
    """What the last SCHEMA message said of a stream.

    Attributes:
        stream: Its name.
        schema: The JSON Schema.
        key_properties: Primary key; may be empty.
        serial: Counts the SCHEMA messages of this stream within the run, from 0.
    """

    stream: str
    schema: Mapping[str, Any]
    key_properties: tuple[str, ...] = ()
    serial: int = 0


@dataclass(frozen=True)
class Batch:
    """Files of one stream and one schema that become durable together (one flush).

    Attributes:
        stream: The schema they are read with.
        files: In arrival order.
        token: Identifies the flush within the run and across a repeated one.
        version: Table version of the messages, where they had one.
        received_at: When the first message arrived, seconds since the epoch.
    """

    stream: StreamSchema
    files: tuple[InputFile, ...]
    token: str
    version: int | None = None
    received_at: float = 0.0


@dataclass(frozen=True)
class Part:
    """One file that executors have written and no reader sees yet.

    Attributes:
        url: Where it lies.
        rows: Rows in it.
        size: Bytes in it.
    """

    url: str
    rows: int
    size: int


@dataclass(frozen=True)
class Reject:
    """A record that could not be loaded.

    Attributes:
        file: File it came from.
        line: 1-based line (of stdin for RECORD, of the file for BATCH).
        reason: What is wrong with it, in one line.
    """

    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class LoadResult:
    """What one Spark job made of a batch's files, before the commit.

    Attributes:
        parts: The files written.
        rows: Rows in them.
        rejects: The first records that were left out, in order; their number is bounded.
        rejected: How many were left out in all.
        reject_files: URLs of files that hold all of them with their text, as `target_spark.rejects`
            writes them; only where they are asked for. They stay until commit or abort.
    """

    parts: tuple[Part, ...] = ()
    rows: int = 0
    rejects: tuple[Reject, ...] = ()
    rejected: int = 0
    reject_files: tuple[str, ...] = ()
