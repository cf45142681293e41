"""Arrow IPC, as files and as streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from shared.formats.arrow_messages import (
    FILE_MARK,
    STREAM_MARK,
    checked_message,
    layout_of,
    rows_of,
)
from shared.formats.decoded_sizes import bounded_tables
from shared.formats.encoding_base import (
    BLOCK_BYTES,
    TABLE_ROWS,
    ContentError,
    check_mark,
    grouped,
)
from shared.storage.files import StorageOptions, open_output, open_plain, open_random


class ArrowFormat:
    """Arrow IPC: written as files, which have a footer; streams are read too."""

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec`."""
        return read_groups(url, None, options)

    def write(
        self,
        url: str,
        schema: pa.Schema,
        tables: Iterable[pa.Table],
        compression: str,
        options: StorageOptions | None = None,
        level: int | None = None,
    ) -> None:
        """See `Codec`."""
        codec = None if compression == "none" else pa.Codec(compression, level)
        with (
            open_output(url, options=options) as sink,
            pa.ipc.new_file(
                sink, schema, options=pa.ipc.IpcWriteOptions(compression=codec)
            ) as writer,
        ):
            for group in grouped(tables, BLOCK_BYTES):
                writer.write_table(group.combine_chunks(), max_chunksize=TABLE_ROWS)


def read_groups(
    url: str, groups: range | None, options: StorageOptions | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of some record batches of a file or stream (None: all), in bounded tables.

    Raises:
        OSError: The file cannot be opened, or is damaged.
        pyarrow.ArrowInvalid: As `shared.formats.columnar_encoding.read_groups`.
    """
    check_mark(url, (FILE_MARK, STREAM_MARK), "arrow", options, packed=True)
    with open_plain(url, options) as source:
        layout = layout_of(source)
        chosen = layout.batches if groups is None else layout.batches[groups.start : groups.stop]
        blocks = layout.messages(chosen)
        messages = _Messages(checked_message(source, block) for block in blocks)
        packed = sum(block.size for block in blocks)
        yield from _decoded(pa.PythonFile(messages, mode="r"), packed)


def group_sizes(url: str, options: StorageOptions | None = None) -> list[tuple[int, int]]:
    """Return bytes and rows of each record batch; empty for a file of another kind.

    Raises:
        OSError: The file cannot be opened.
    """
    with open_random(url, options, ahead=False) as source:
        try:
            batches = layout_of(source).batches
            return [(block.size, rows_of(source, block)) for block in batches]
        except pa.ArrowInvalid:
            return []


def _decoded(messages: pa.NativeFile, packed: int) -> Iterator[pa.Table]:
    """Yield the rows of a stream, and a table without rows at its end."""
    try:
        stream = pa.ipc.open_stream(messages)
        empty = stream.schema.empty_table()
        if empty.column_names:
            for batch in stream:
                # Arrow checks neither offsets nor texts when it reads.
                batch.validate(full=True)
                for start in range(0, batch.num_rows, TABLE_ROWS):
                    yield from bounded_tables(batch.slice(start, TABLE_ROWS), packed)
        yield empty
    except (KeyError, MemoryError, TypeError, UnicodeDecodeError) as error:
        raise ContentError(f"it is damaged: {error}") from None


class _Messages:
    """A file that Arrow can read: one message after the other, none of them copied."""

    closed = False

    def __init__(self, messages: Iterator[bytes]) -> None:
        self._messages = messages
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int) -> memoryview:
        if not self._rest:
            self._rest = memoryview(next(self._messages, b""))
        part, self._rest = self._rest[:size], self._rest[size:]
        return part

    def close(self) -> None:
        self.closed = True
