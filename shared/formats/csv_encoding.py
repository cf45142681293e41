"""CSV.

Why beside the tap's CSV: batch files have one dialect, and the text of nested values.
"""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import compute

from shared.formats.json_text import NON_FINITE
from shared.formats.line_encodings import (
    BLOCK_BYTES,
    LOOKED_AT,
    ContentError,
    content_of,
    is_binary,
)
from shared.formats.typed_rows import RefusedRow, row_numbers
from shared.storage.access import StorageOptions
from shared.storage.files import open_input, open_output

_HEADER_BYTES = 256 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_EMPTY = "Empty CSV file"
"""What Arrow says of a file without a whole line."""


class CsvFormat:
    """RFC 4180 with a header; a null is empty, an empty text is `""`; texts are always quoted.

    Binary is base64, non-finite numbers are `NaN`, `Infinity` and `-Infinity`, instants are UTC
    with a `Z`. Nested columns must be JSON text already.
    """

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec`: every column as its text in the file.

        Raises:
            ContentError: Also for a malformed row; says which one and why.
        """
        for table, refused in read_csv(url, options):
            if refused:
                raise ContentError(f"row {refused[0].number}: {refused[0].reason}")
            yield table

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
        from pyarrow import csv  # noqa: PLC0415

        with open_output(url, compression, options, level) as sink:
            csv.write_csv(_csv_columns(schema.empty_table()), sink)
            for table in tables:
                csv.write_csv(_csv_columns(table), sink, csv.WriteOptions(include_header=False))


def read_csv(
    url: str, options: StorageOptions | None = None
) -> Iterator[tuple[pa.Table, list[RefusedRow]]]:
    """Yield the rows of a CSV file in bounded tables, all columns as text.

    Yields:
        A table, and the malformed rows before and between its rows: with too few or too many
        fields, with bytes that are not UTF-8 text, or cut within quotation marks at the end of
        the file. In order; numbers continue from table to table.

    Raises:
        OSError: The file cannot be opened.
        pyarrow.ArrowInvalid: It is not a CSV file, or a quoted value does not end within 8 MiB.
    """
    from pyarrow import csv  # noqa: PLC0415

    head = _head(url, options)
    ragged: deque[RefusedRow] = deque()

    def refuse(row: Any) -> str:
        few = "1 field" if row.actual_columns == 1 else f"{row.actual_columns} fields"
        reason = f"{few} where the header has {row.expected_columns}"
        ragged.append(RefusedRow(row.number - 1, reason, row.text.encode()))
        return "skip"

    with _named_problems():
        try:
            names = _names(url, options)
        except pa.ArrowInvalid as error:
            if _EMPTY not in str(error):
                raise
            yield _lone_header(url, options), []
            return
    reading = csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False)
    # An empty line is a null of the only column. Before the header it is nothing.
    begins_blank = head.removeprefix(_BYTE_ORDER_MARK)[:1].isspace()
    parsing = csv.ParseOptions(
        newlines_in_values=True,
        ignore_empty_lines=len(names) > 1 or begins_blank,
        invalid_row_handler=refuse,
    )
    converting = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.binary()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    before = 0
    # The last table is held back: its last row may turn out to be cut at the end of the file.
    last = pa.table({name: pa.array([], pa.string()) for name in names}), list[RefusedRow]()
    with open_input(url, options) as source, _named_problems():
        for batch in csv.open_csv(source, reading, parsing, converting):
            if before:
                yield last
            last = _as_text(pa.Table.from_batches([batch]), ragged, before)
            before += last[0].num_rows + len(last[1])
    ends_refused = bool(ragged) or any(row.number == before for row in last[1])
    cut = None if ends_refused else _open_row(last[0], before)
    if cut is not None and _has_open_quotes(url, options):
        last = last[0].slice(0, last[0].num_rows - 1), [*last[1], cut]
    yield last
    if ragged:
        yield last[0].slice(0, 0), list(ragged)


def _names(url: str, options: StorageOptions | None) -> list[str]:
    """Return the column names, read from as small a part of the file as possible."""
    from pyarrow import csv  # noqa: PLC0415

    parsing = csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda _: "skip")

    def within(size: int) -> list[str]:
        reading = csv.ReadOptions(block_size=size, use_threads=False)
        with open_input(url, options) as source:
            return list(csv.open_csv(source, reading, parsing).schema.names)

    try:
        return within(_HEADER_BYTES)
    except pa.ArrowInvalid:
        return within(BLOCK_BYTES)


def _lone_header(url: str, options: StorageOptions | None) -> pa.Table:
    """Return a table without rows for a header without a line end, which Arrow refuses."""
    from pyarrow import csv  # noqa: PLC0415

    with open_input(url, options) as source:
        header = bytes(source.read(BLOCK_BYTES))
    if len(header) == BLOCK_BYTES:  # There may be rows behind it.
        raise _bad_header()
    reading = csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False)
    return _cast(csv.read_csv(pa.BufferReader(header + b"\n"), reading))


def _bad_header() -> ContentError:
    most = BLOCK_BYTES // 2**20
    return ContentError(
        f"its header is missing or longer than {most} MiB, or a quotation mark is never closed"
    )


def _as_text(
    table: pa.Table, ragged: deque[RefusedRow], before: int
) -> tuple[pa.Table, list[RefusedRow]]:
    """Return the table with its bytes as text, and the rows rejected up to its last row."""
    refused: list[RefusedRow] = []
    while ragged and ragged[0].number <= before + table.num_rows + len(refused) + 1:
        refused.append(ragged.popleft())
    try:
        return _cast(table), refused
    except pa.ArrowInvalid:
        pass
    number = row_numbers(before, refused)
    bad: dict[int, str] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        for place, value in enumerate(column.to_pylist()):
            # What is not text is left out, and the rest is shorter.
            if value is not None and value.decode(errors="ignore").encode() != value:
                bad.setdefault(place, name)
    for place, name in bad.items():
        values = [column[place].as_py() for column in table.columns]
        reason = f"property '{name}': not UTF-8 text"
        refused.append(RefusedRow(number(place), reason, b",".join(map(_quoted, values))))
    kept = pa.array([place not in bad for place in range(table.num_rows)])
    return _cast(table.filter(kept)), sorted(refused, key=lambda row: row.number)


def _open_row(table: pa.Table, number: int) -> RefusedRow | None:
    """Return the last row of a file if it may have been cut within quotation marks.

    Such a row includes all text after it, so its last value has line breaks.
    """
    last = table.slice(max(0, table.num_rows - 1)).to_pylist()
    values = list(last[0].values()) if last else [None]
    if "\n" not in (values[-1] or ""):
        return None
    text = b",".join(_quoted(None if value is None else value.encode()) for value in values)
    return RefusedRow(number, "a quotation mark is never closed", text)


def _has_open_quotes(url: str, options: StorageOptions | None) -> bool:
    """Return whether the number of quotation marks in a file is odd."""
    with open_input(url, options) as source:
        chunks = iter(lambda: source.read(BLOCK_BYTES), b"")
        return bool(sum(chunk.count(b'"') for chunk in chunks) % 2)


def _cast(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([(name, pa.string()) for name in table.column_names]))


def _quoted(value: bytes | None) -> bytes:
    return b"" if value is None else b'"' + value.replace(b'"', b'""') + b'"'


@contextmanager
def _named_problems() -> Iterator[None]:
    """Rewrite Arrow's errors, which are about its blocks, in terms of the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ContentError("its header is not UTF-8 text") from error
    except pa.ArrowInvalid as error:
        if _EMPTY in str(error):
            raise _bad_header() from error
        if "straddling" not in str(error):
            raise
        most = BLOCK_BYTES // 2**20
        raise ContentError(
            f"a row is longer than {most} MiB, or a quotation mark is never closed"
        ) from error


def _head(url: str, options: StorageOptions | None) -> bytes:
    """Return the first bytes of a file; raise ContentError if it is not CSV."""
    with open_input(url, options) as source:
        head = bytes(source.read(LOOKED_AT))
    content = content_of(head)
    if is_binary(head, nulls=False) or content == "JSON lines" or not head:
        raise ContentError(f"labelled csv, but it looks like {content}")
    return head


def _csv_columns(table: pa.Table) -> pa.Table:
    """Convert to text the columns that the CSV writer lacks or writes otherwise."""
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
    if compute.all(compute.is_finite(column), min_count=0).as_py() is not False:
        return column
    text = column.cast(pa.string())
    for name, number in NON_FINITE.items():
        text = compute.if_else(compute.equal(text, str(number)), name, text)
    return text
