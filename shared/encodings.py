"""Encodings: Arrow tables to files and back, one small class per format.

Everything here runs on the executors (inside `mapInArrow`) and on the driver alike. Line formats
are read as blocks of whole lines, which `shared.json_lines` parses; the others as Arrow tables.
Blocks and tables are bounded, whatever the size of the file.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from shared.storage import COMPRESSIONS, open_input, open_output, open_random

BLOCK_BYTES = 16 * 1024 * 1024
"""Bytes of lines that are parsed at once."""

TABLE_ROWS = 16_384
"""Rows of a columnar file that are read at once."""

ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Arrow bytes that are collected into one row group or stripe."""


@dataclass(frozen=True)
class Encoding:
    """Format and compression of a file, as in the `encoding` of a BATCH message.

    Attributes:
        format: A key of the registry: `singer` (staged RECORD lines), `jsonl`, `parquet`, ...
        compression: `none`, `gzip`, `zstd`, `snappy`, ...
    """

    format: str
    compression: str = "none"


class Format(Protocol):
    """One file format. Rows of a text format are lines in a single string column."""

    @property
    def text(self) -> bool:
        """Whether rows are lines of text."""

    @property
    def compressions(self) -> tuple[str, ...]:
        """What it may be compressed with; the default first."""

    def extension(self, compression: str) -> str:
        """How names of such files end."""

    def read(self, url: str) -> Iterator[pa.Table]:
        """The rows of a file in bounded tables.

        Raises:
            OSError: The file cannot be opened.
            pyarrow.ArrowInvalid: It is not of this format.
        """

    def write(
        self, url: str, schema: pa.Schema, tables: Iterable[pa.Table], compression: str
    ) -> None:
        """Creates a file with the rows of all tables, which have this schema."""


class ParquetFormat:
    """Parquet as Spark writes it: microseconds, exact decimals, snappy."""

    text = False
    compressions = ("snappy", "zstd", "gzip", "lz4", "none")

    def extension(self, compression: str) -> str:  # noqa: ARG002
        """See `Format`."""
        return ".parquet"

    def read(self, url: str) -> Iterator[pa.Table]:
        """See `Format`."""
        from pyarrow import parquet  # noqa: PLC0415

        with open_random(url) as source:
            file = parquet.ParquetFile(source)
            for batch in file.iter_batches(batch_size=TABLE_ROWS, use_threads=False):
                yield pa.Table.from_batches([batch])

    def write(
        self, url: str, schema: pa.Schema, tables: Iterable[pa.Table], compression: str
    ) -> None:
        """See `Format`."""
        from pyarrow import parquet  # noqa: PLC0415

        with (
            open_output(url) as sink,
            parquet.ParquetWriter(
                sink, schema, compression=compression, coerce_timestamps="us", version="2.6"
            ) as writer,
        ):
            for group in grouped(tables):
                writer.write_table(group, row_group_size=max(1, group.num_rows))


class OrcFormat:
    """ORC; instants are written as `timestamp with local time zone`."""

    text = False
    compressions = ("snappy", "zstd", "zlib", "lz4", "none")

    def extension(self, compression: str) -> str:  # noqa: ARG002
        """See `Format`."""
        return ".orc"

    def read(self, url: str) -> Iterator[pa.Table]:
        """See `Format`."""
        from pyarrow import orc  # noqa: PLC0415

        with open_random(url) as source:
            file = orc.ORCFile(source)
            for stripe in range(file.nstripes):
                yield pa.Table.from_batches([file.read_stripe(stripe)])

    def write(
        self, url: str, schema: pa.Schema, tables: Iterable[pa.Table], compression: str
    ) -> None:
        """See `Format`."""
        from pyarrow import orc  # noqa: PLC0415

        codec = "uncompressed" if compression == "none" else compression
        with open_output(url) as sink, orc.ORCWriter(sink, compression=codec) as writer:
            writer.write(schema.empty_table())
            for group in grouped(tables):
                writer.write(group)


@dataclass(frozen=True)
class LineFormat:
    """JSON objects, one a line; rows to write are texts that end in a newline."""

    suffix: str
    text = True
    compressions = ("none", *COMPRESSIONS)

    def extension(self, compression: str) -> str:
        """See `Format`."""
        return self.suffix + _COMPRESSED_SUFFIX[compression]

    def read(self, url: str) -> Iterator[pa.Table]:
        """See `Format`: one column of whole lines, many lines in each value."""
        for block in read_lines(url):
            yield pa.table({"value": pa.array([block], pa.large_binary())})

    def write(
        self, url: str, schema: pa.Schema, tables: Iterable[pa.Table], compression: str
    ) -> None:
        """See `Format`; the schema's only column holds the lines."""
        with open_output(url, compression) as sink:
            for table in tables:
                for chunk in table.column(schema.names[0]).chunks:
                    sink.write(text_bytes(chunk))


class CsvFormat:
    """RFC 4180 with a header; a null is empty, an empty text is `""`; texts are always quoted.

    Binary is base64, non-finite numbers are `NaN`, `Infinity` and `-Infinity`, instants are UTC
    with a `Z`. Nested columns must be JSON text before they come here.
    """

    text = False
    compressions = ("none", *COMPRESSIONS)

    def extension(self, compression: str) -> str:
        """See `Format`."""
        return ".csv" + _COMPRESSED_SUFFIX[compression]

    def read(self, url: str) -> Iterator[pa.Table]:
        """See `Format`: every column as the text that stands in the file."""
        from pyarrow import csv  # noqa: PLC0415

        parsing = csv.ParseOptions(newlines_in_values=True)
        with open_input(url) as source:
            names = csv.open_csv(source, parse_options=parsing).schema.names
        converting = csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        reading = csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False)
        with open_input(url) as source:
            for batch in csv.open_csv(source, reading, parsing, converting):
                yield pa.Table.from_batches([batch])

    def write(
        self, url: str, schema: pa.Schema, tables: Iterable[pa.Table], compression: str
    ) -> None:
        """See `Format`."""
        from pyarrow import csv  # noqa: PLC0415

        with open_output(url, compression) as sink:
            csv.write_csv(_csv_columns(schema.empty_table()), sink)
            for table in tables:
                csv.write_csv(_csv_columns(table), sink, csv.WriteOptions(include_header=False))


FORMATS: Mapping[str, Format] = {
    "singer": LineFormat(".singer"),
    "jsonl": LineFormat(".jsonl"),
    "json": LineFormat(".json"),
    "parquet": ParquetFormat(),
    "orc": OrcFormat(),
    "csv": CsvFormat(),
}
"""Every format by its name in an `Encoding`."""


def read_lines(
    url: str, start: int = 0, length: int | None = None, block_bytes: int = BLOCK_BYTES
) -> Iterator[bytes]:
    """The lines of a file in blocks that end at a line's end (the last one may lack it).

    Args:
        url: The file; its compression is told from its content.
        start: Byte a range begins at; a line that begins before it belongs to the range before.
        length: Bytes of the range, or None for all up to the end; the range's last line is read
            to its end. Ranges need a file that is not compressed.
        block_bytes: Size of the blocks; longer only where a single line is.
    """
    whole = start == 0 and length is None
    with open_input(url) if whole else open_random(url) as source:
        if whole:
            yield from _cut(iter(lambda: source.read(block_bytes), b""))
        else:
            yield from _cut(_range_chunks(source, start, length, block_bytes))


def grouped(tables: Iterable[pa.Table], size: int = ROW_GROUP_BYTES) -> Iterator[pa.Table]:
    """Joins tables until each (but the last) holds at least `size` bytes."""
    held: list[pa.Table] = []
    held_bytes = 0
    for table in tables:
        held.append(table)
        held_bytes += table.nbytes
        if held_bytes >= size:
            yield pa.concat_tables(held)
            held, held_bytes = [], 0
    if held:
        yield pa.concat_tables(held)


def text_bytes(texts: pa.Array) -> pa.Buffer:
    """All values of a string array, one after the other, without a copy."""
    if len(texts) == 0:
        return pa.py_buffer(b"")
    if texts.null_count:
        texts = texts.drop_null()
    kind = pa.int64() if pa.types.is_large_string(texts.type) else pa.int32()
    _, offsets, data = texts.buffers()
    ends = pa.Array.from_buffers(kind, len(texts) + 1, [None, offsets], offset=texts.offset)
    first, last = ends[0].as_py(), ends[len(texts)].as_py()
    return data.slice(first, last - first) if data is not None else pa.py_buffer(b"")


_LINE_STEP = 64 * 1024
_COMPRESSED_SUFFIX = {"none": "", "gzip": ".gz", "zstd": ".zst", "bzip2": ".bz2"}


def _cut(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Chunks cut anew so that each ends with a line."""
    pending: list[bytes] = []
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join([*pending, chunk[:end]])
            pending = [chunk[end:]] if end < len(chunk) else []
        else:
            pending.append(chunk)
    if pending:
        yield b"".join(pending)


def _range_chunks(
    source: pa.NativeFile, start: int, length: int | None, block_bytes: int
) -> Iterator[bytes]:
    """The bytes of all lines that begin within a range."""
    left = source.size() - start if length is None else length
    source.seek(max(0, start - 1))
    if start:
        skipped = len(_to_line_end(source))
        left -= skipped - 1
        source.seek(start - 1 + skipped)
    last = b"\n"
    while left > 0 and (chunk := source.read(min(block_bytes, left))):
        left -= len(chunk)
        last = chunk[-1:]
        yield chunk
    if last != b"\n":
        yield _to_line_end(source)


def _to_line_end(source: pa.NativeFile) -> bytes:
    """The bytes up to the end of the line; the source may stand behind it afterwards."""
    found: list[bytes] = []
    while chunk := source.read(_LINE_STEP):
        end = chunk.find(b"\n") + 1
        found.append(chunk[:end] if end else chunk)
        if end:
            break
    return b"".join(found)


def _csv_columns(table: pa.Table) -> pa.Table:
    """The table with the columns that the CSV writer lacks or writes otherwise made text."""
    for position, field in enumerate(table.schema):
        column = table.column(position)
        if pa.types.is_floating(field.type):
            text = _non_finite_text(column)
        elif pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            values = (None if value is None else b64encode(value) for value in column.to_pylist())
            text = pa.array(values, pa.string())
        else:
            continue
        table = table.set_column(position, field.name, text)
    return table


def _non_finite_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    from pyarrow import compute  # noqa: PLC0415

    if compute.all(compute.is_finite(column), min_count=0).as_py() is not False:
        return column
    text = column.cast(pa.string())
    for arrow, json in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        text = compute.if_else(compute.equal(text, arrow), json, text)
    return text
