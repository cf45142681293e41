"""CSV."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator

import pyarrow as pa

from shared.format_base import (
    BLOCK_BYTES,
    COMPRESSED_SUFFIX,
    LINE_COMPRESSIONS,
    LOOKED_AT,
    ContentError,
    content_of,
    is_binary,
)
from shared.storage import StorageOptions, open_input, open_output


class CsvFormat:
    """RFC 4180 with a header; a null is empty, an empty text is `""`; texts are always quoted.

    Binary is base64, non-finite numbers are `NaN`, `Infinity` and `-Infinity`, instants are UTC
    with a `Z`. Nested columns must be JSON text before they come here.
    """

    text = False
    compressions = LINE_COMPRESSIONS

    def extension(self, compression: str) -> str:
        """See `Format`."""
        return ".csv" + COMPRESSED_SUFFIX[compression]

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Format`: every column as the text that stands in the file."""
        from pyarrow import csv  # noqa: PLC0415

        _check(url, options)
        parsing = csv.ParseOptions(newlines_in_values=True)
        with open_input(url, options) as source:
            names = csv.open_csv(source, parse_options=parsing).schema.names
        converting = csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        reading = csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False)
        with open_input(url, options) as source:
            for batch in csv.open_csv(source, reading, parsing, converting):
                yield pa.Table.from_batches([batch])

    def write(
        self,
        url: str,
        schema: pa.Schema,
        tables: Iterable[pa.Table],
        compression: str,
        options: StorageOptions | None = None,
    ) -> None:
        """See `Format`."""
        from pyarrow import csv  # noqa: PLC0415

        with open_output(url, compression, options) as sink:
            csv.write_csv(_csv_columns(schema.empty_table()), sink)
            for table in tables:
                csv.write_csv(_csv_columns(table), sink, csv.WriteOptions(include_header=False))


def _check(url: str, options: StorageOptions | None) -> None:
    with open_input(url, options) as source:
        head = bytes(source.read(LOOKED_AT))
    found = content_of(head)
    if is_binary(head, nulls=False) or found == "JSON lines" or not head:
        raise ContentError(f"labelled csv, but it looks like {found}")


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
