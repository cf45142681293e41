"""Parquet and ORC."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from shared.formats.dictionary_columns import dictionary_paths
from shared.formats.encoding_base import (
    ROW_GROUP_BYTES,
    ContentError,
    check_mark,
    grouped,
)
from shared.formats.parquet_pages import CheckedPages, rows_at_once
from shared.storage import limits
from shared.storage.files import StorageOptions, open_output, open_plain, open_random
from shared.storage.urls import local_path

_REMOTE_BUFFER_BYTES = 1024 * 1024
_LOCAL_BUFFER_BYTES = 256 * 1024
"""What is read ahead of each column."""


class ParquetFormat:
    """Parquet as Spark writes it: microseconds, exact decimals, snappy.

    Files that are gzipped as a whole (`.parquet.gz`) are read too.
    """

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
        from pyarrow import parquet  # noqa: PLC0415

        groups = grouped(tables, ROW_GROUP_BYTES)
        group = next(groups, None)
        with (
            open_output(url, options=options) as sink,
            parquet.ParquetWriter(
                sink,
                schema,
                compression=compression,
                compression_level=level,
                use_dictionary=True if group is None else dictionary_paths(group),
                coerce_timestamps="us",
                version="2.6",
            ) as writer,
        ):
            while group is not None:
                writer.write_table(group, row_group_size=max(1, group.num_rows))
                group = None  # before the next one is collected
                group = next(groups, None)


class OrcFormat:
    """ORC; instants are written as `timestamp with local time zone`."""

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec`."""
        from pyarrow import orc  # noqa: PLC0415

        check_mark(url, b"ORC", "orc", options)
        with open_random(url, options) as source:
            file = orc.ORCFile(source)
            for stripe in range(file.nstripes):
                yield pa.Table.from_batches([file.read_stripe(stripe)])

    def write(
        self,
        url: str,
        schema: pa.Schema,
        tables: Iterable[pa.Table],
        compression: str,
        options: StorageOptions | None = None,
    ) -> None:
        """See `Codec`."""
        from pyarrow import orc  # noqa: PLC0415

        codec = "uncompressed" if compression == "none" else compression
        with (
            open_output(url, options=options) as sink,
            orc.ORCWriter(sink, compression=codec) as writer,
        ):
            writer.write(schema.empty_table())
            for group in grouped(tables, ROW_GROUP_BYTES):
                writer.write(group)
                del group  # before the next one is collected


def read_groups(
    url: str, groups: range | None, options: StorageOptions | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of some row groups of a Parquet file (None: all), in bounded tables.

    Raises:
        OSError: The file cannot be opened.
        pyarrow.ArrowInvalid: It is no Parquet file, or damaged, or holds more than any data would.
    """
    from pyarrow import parquet  # noqa: PLC0415

    check_mark(url, b"PAR1", "parquet", options, packed=True)
    with open_plain(url, options) as source:
        footer = parquet.read_metadata(source)
        chosen = range(footer.num_row_groups) if groups is None else groups
        largest = max((_packed_bytes(footer.row_group(number)) for number in chosen), default=0)
        # Remote storage answers one request for a group faster, but the group is then in memory.
        is_local = local_path(url) is not None
        pages = CheckedPages(source, footer, chosen)
        file = parquet.ParquetFile(
            pages,
            metadata=footer,
            pre_buffer=not is_local and largest <= ROW_GROUP_BYTES,
            buffer_size=_LOCAL_BUFFER_BYTES if is_local else _REMOTE_BUFFER_BYTES,
        )
        none = True
        for group in chosen:
            rows = rows_at_once(file, group, pages)
            for batch in file.iter_batches(rows, row_groups=[group], use_threads=False):
                none = False
                yield pa.Table.from_batches([batch])
        if none:
            yield file.schema_arrow.empty_table()


def _packed_bytes(group: Any) -> int:
    """Return the compressed bytes of a row group; raise ContentError if it is a bomb."""
    columns = [group.column(number) for number in range(group.num_columns)]
    packed: int = sum(column.total_compressed_size for column in columns)
    plain = sum(column.total_uncompressed_size for column in columns)
    if limits.is_bomb(packed, plain):
        raise ContentError(limits.bomb_text())
    return packed


def group_sizes(url: str, options: StorageOptions | None = None) -> list[tuple[int, int]]:
    """Return compressed bytes and rows of each row group; empty for a file of another kind.

    Raises:
        OSError: The file cannot be opened.
    """
    from pyarrow import parquet  # noqa: PLC0415

    with open_random(url, options) as source:
        try:
            footer = parquet.read_metadata(source)
        except pa.ArrowInvalid:
            return []
    found = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        columns = map(group.column, range(group.num_columns))
        found.append((sum(column.total_compressed_size for column in columns), group.num_rows))
    return found


def orc_rows(url: str, options: StorageOptions | None = None) -> int:
    """Return the rows in the footer of an ORC file.

    Raises:
        OSError: The file cannot be opened, or is not ORC.
    """
    from pyarrow import orc  # noqa: PLC0415

    with open_random(url, options) as source:
        return int(orc.ORCFile(source).nrows)
