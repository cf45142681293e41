"""CSV files of any size read by threads of the driver, in blocks of whole lines that they share.

Spark's parser has answers of its own for damaged or unusual lines. So `plain_csv` reads only bytes
that leave no choice: UTF-8 lines with equally many fields, each either without quotes or quoted as
RFC 4180 has it. It returns None for everything else, and Spark reads the files.

Why beside `csv_files`: threads read plain files faster than Spark starts (`benchmarks.csv_small`).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.csv as pa_csv
from pyspark.sql.types import DataType, StructField, StructType

from shared.engine.engine import TYPES, Engine, Work
from shared.formats.arrow_types import spark_to_arrow, struct_to_arrow
from shared.storage.files import open_random
from tap_spark.sources.files.driver_files import (
    DriverFiles,
    block_bytes,
    blocks_of,
    mapped,
    whole_columns,
)
from tap_spark.sources.files.line_reader import BOM, FilePart, LineRange, unfinished_line
from tap_spark.sources.files.text_types import (
    add_forms,
    decide,
    keeps_forms,
    simple_ddl,
    typed_arrays,
    union,
)
from tap_spark.state.stream_plans import DriverBlocks, StreamPlan

HEADER_BYTES = 64 * 1024
"""Bytes at the start of a file in which its header is looked for."""

MOST_COLUMNS = 10_000
_OPTIONS = {"header", "sep", "delimiter"}
_SEPARATORS = {",": ",", ";": ";", "|": "|", "\t": "\t", "\\t": "\t"}

_SPACES = rb"[\x00-\x09\x0b-\x20]+(?:\n|\Z)"
_FIRST_OF_SPACES, _LATER_OF_SPACES = re.compile(_SPACES), re.compile(rb"\n" + _SPACES)
"""A line of nothing but spaces. As one pattern of two choices, they would take thirty times as
long: Python looks for a literal start fast."""


@dataclass(frozen=True)
class PlainCsv:
    """How lines of one stream are parsed.

    Attributes:
        separator: One character.
        header: Whether each file starts with a header line.
    """

    separator: str
    header: bool

    def first_line(self, head: bytes) -> tuple[str, ...] | None:
        """Return the fields of the first line that is not blank, at the start of a file.

        None if there is no such line, or Spark may read it in another way. Line feeds end lines.
        """
        line = self._checked(head.lstrip(b"\n").partition(b"\n")[0])
        if not line:
            return None
        try:
            (fields,) = csv.reader([line.decode()], delimiter=self.separator, strict=True)
        except csv.Error:
            return None
        return tuple(fields) if len(fields) <= MOST_COLUMNS else None

    def columns(self, data: bytes, count: int) -> list[pa.StringArray] | None:
        """Parse whole lines without a header into columns of text; an empty field is null.

        None if Spark may read the lines in another way. Line feeds end lines.
        """
        # `strip` copies what ends in a line feed, as blocks do.
        if data[:1] in (b"", b"\n") and not data.strip(b"\n"):
            return [pa.array([], pa.string())] * count
        if not self._checked(data):
            return None
        return self.parsed(data, count, dict.fromkeys(range(count), pa.string()))

    def parsed(
        self, data: bytes, count: int, kinds: Mapping[int, pa.DataType]
    ) -> list[pa.Array] | None:
        """Do the same for lines that leave no choice to a parser, with types by position.

        Returns:
            The columns with types; None if lines have other columns, or a value is not of its type.
        """
        names = [f"c{number}" for number in range(count)]
        wanted = {names[place]: kind for place, kind in kinds.items()}
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(data),
                pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
                pa_csv.ParseOptions(delimiter=self.separator, newlines_in_values=False),
                pa_csv.ConvertOptions(
                    column_types=wanted,
                    include_columns=[*wanted],
                    null_values=[""],
                    strings_can_be_null=True,
                    check_utf8=False,  # It is.
                    true_values=["true"],
                    false_values=["false"],
                ),
            )
        except pa.ArrowInvalid:
            return None
        return whole_columns(table)

    def _checked(self, data: bytes) -> bytes:
        """Return the data if they leave no choice to a parser; else nothing."""
        # What may be a line end, or not UTF-8: fast searches, before the pattern for quotes.
        if b"\x00" in data or b"\r" in data or not (data.isascii() or _is_utf8(data)):
            return b""
        if _FIRST_OF_SPACES.match(data) or _LATER_OF_SPACES.search(data):
            return b""
        if b'"' in data:
            around = re.escape(self.separator.encode()) + b"\\n"
            quoted = rb'(?<![^%b])"[^"\n]*(?:""[^"\n]*)*"(?=[%b]|\Z)' % (around, around)
            # A quote that is left is not part of a quoted field.
            if b'"' in re.sub(quoted, b"", data):
                return b""
        return data


def _is_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8 without a byte order mark."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return BOM not in data


def plain_csv(options: Mapping[str, str]) -> PlainCsv | None:
    """Return how lines are parsed; None if a reader option asks for more."""
    values = {name.lower(): value for name, value in options.items()}
    separators = [values[name] for name in ("sep", "delimiter") if name in values] or [","]
    separator = _SEPARATORS.get(str(separators[0]))
    if values.keys() - _OPTIONS or len(separators) > 1 or separator is None:
        return None
    return PlainCsv(separator, values.get("header", "true").lower() == "true")


MOST_FORMS = 2_000
"""Bound of memory: blocks whose forms are kept, 8 GB."""

_FORMS: dict[tuple[LineRange, str, int], tuple[tuple[int, int], list[int | None]]] = {}
"""Content of blocks, and forms of their columns: read again, these need not be checked again."""


@dataclass(frozen=True)
class CsvBlocks:
    """The lines of files of one layout.

    Attributes:
        parser: How lines are parsed.
        header: The header of each file; None without one.
        width: The number of columns.
        ranges: The blocks, without headers.
    """

    parser: PlainCsv
    header: tuple[str, ...] | None
    width: int
    ranges: Sequence[LineRange]

    def typed(
        self, block: LineRange, places: Sequence[int], types: Sequence[DataType]
    ) -> list[pa.Array] | None:
        """Read columns of a block in their types; None if Spark may read it in another way.

        Raises:
            OSError: The file cannot be read.
        """
        data = block_bytes(block)
        if data is None:
            return None
        # The types keep these values, so that Arrow may parse straight into them. A file that has
        # changed since then has another hash, and its values are checked again as text.
        if self.keeps(block, places, types) and _FORMS[self._key(block)][0] == _content(data):
            kinds = {n: spark_to_arrow(dtype) for n, dtype in zip(places, types, strict=True)}
            columns = self.parser.parsed(data, self.width, kinds)
            if columns is not None:
                return columns
        texts = self.parser.columns(data, self.width)
        return None if texts is None else typed_arrays([texts[n] for n in places], types)

    def _key(self, block: LineRange) -> tuple[LineRange, str, int]:
        return block, self.parser.separator, self.width

    def keeps(self, block: LineRange, places: Sequence[int], types: Sequence[DataType]) -> bool:
        """Return whether types surely keep the values of a block whose forms have been read."""
        _, forms = _FORMS.get(self._key(block), (None, None))
        return forms is not None and all(
            keeps_forms(dtype, forms[place]) for dtype, place in zip(types, places, strict=True)
        )

    def forms(self) -> list[int | None] | None:
        """Return the forms of each column over all blocks; None if Spark must read them.

        Raises:
            OSError: A file cannot be read.
        """
        forms: list[list[int | None]] = []
        for block_forms in mapped(self._forms, self.ranges):
            if block_forms is None:
                return None
            forms.append(block_forms)
        return union(forms, self.width)

    def _forms(self, block: LineRange) -> list[int | None] | None:
        data = block_bytes(block)
        columns = None if data is None else self.parser.columns(data, self.width)
        if data is None or columns is None:
            return None
        forms = [add_forms(None, column) for column in columns]
        if len(_FORMS) < MOST_FORMS:
            _FORMS[self._key(block)] = _content(data), forms
        return forms


def _content(data: bytes) -> tuple[int, int]:
    return hash(data), len(data)


def csv_blocks(parser: PlainCsv, parts: Sequence[FilePart]) -> CsvBlocks | None:
    """Find the layout of files from the head of each, and cut them into blocks.

    Returns:
        None if no file has a line, if layouts differ, or if only Spark can tell.

    Raises:
        OSError: A file cannot be read.
    """
    csv: CsvBlocks | None = None
    ranges: list[LineRange] = []
    for url, start, end in parts:
        head = _head(parser, url, start, end)
        if head is None:
            return None
        header, width, first = head
        if not width:
            continue
        if csv is not None and (csv.header, csv.width) != (header, width):
            return None
        # Blocks of later files are added to the same list.
        csv = CsvBlocks(parser, header, width, ranges)
        ranges += blocks_of((url, first, end))
    return csv


def _head(
    parser: PlainCsv, url: str, start: int, end: int
) -> tuple[tuple[str, ...] | None, int, int] | None:
    """Return the header, the number of columns, and where the rows start.

    Without a line there are no columns. None if Spark must tell.
    """
    from_start = parser.header or not start
    at = 0 if from_start else start
    with open_random(url) as file:
        data = bytes(file.read_at(min(HEADER_BYTES, end - at), at))
    is_whole = at + len(data) >= end
    begin = len(data) - len(data.lstrip(b"\r\n"))
    if begin == len(data):
        return (None, 0, end) if is_whole else None
    stop = data.find(b"\n", begin) + 1
    if not stop and not is_whole:
        return None
    stop = stop or len(data)
    fields = parser.first_line(data[:stop].replace(b"\r\n", b"\n"))
    if fields is None:
        return None
    if not parser.header:
        return None, len(fields), start
    return fields, len(fields), max(start, stop)


def unique_names(header: Sequence[str | None]) -> tuple[str, ...]:
    """Return the columns of a header: empty names become `_cN`, repeated ones get a number.

    Names that differ only by case count as repeated: they are the same to Spark.
    """
    taken = {name.lower() for name in header if name}
    names: list[str] = []
    seen: set[str] = set()
    for position, title in enumerate(header):
        name = title or f"_c{position}"
        base, number = name, 2
        while name.lower() in seen or (name != base and name.lower() in taken):
            name, number = f"{base}_{number}", number + 1
        seen.add(name.lower())
        names.append(name)
    return tuple(names)


def names_by_schema(names: tuple[str, ...], declared: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names of columns if `schema` has `declared`; None if the two do not fit."""
    if set(declared) <= set(names):
        return names
    return tuple(declared) if len(declared) == len(names) else None


def _names(
    header: tuple[str, ...] | None, count: int, declared: StructType | None
) -> tuple[str, ...] | None:
    names = unique_names([None] * count if header is None else header)
    return names if declared is None else names_by_schema(names, declared.names)


def _typed_block(
    blocks: CsvBlocks,
    block: LineRange,
    places: Sequence[int],
    types: Sequence[DataType],
    schema: pa.Schema,
) -> pa.RecordBatch | None:
    """Read columns of a block in their types; None if Spark must read it."""
    try:
        columns = blocks.typed(block, places, types)
    except OSError:
        return None
    return None if columns is None else pa.record_batch(columns, schema=schema)


class CsvReader(DriverFiles):
    """CSV files of one layout that threads read."""

    @cached_property
    def _plain(self) -> PlainCsv | None:
        return plain_csv(self.stream.options)

    @property
    def weight(self) -> float:
        return 0 if self._plain is None else 1

    def schema_on_driver(self, engine: Engine) -> StructType | None:
        """See `DriverSource.schema_on_driver`."""
        declared = simple_ddl(self.stream.schema) if self.stream.schema else None
        if self.stream.schema and declared is None:
            return None
        files = self.plain_files()
        # With `schema`, only the header counts.
        sizes = [min(size, HEADER_BYTES) if declared else size for _, size in files]
        work = Work(self.stream.name, sum(sizes), kind=TYPES)
        if self._plain is None or not engine.takes(work):
            return None
        waits = self._incremental and not self.stream.read_unterminated_line
        ends = [(url, 0, self._finished(url, size) if waits else size) for url, size in files]
        blocks = csv_blocks(self._plain, ends)
        names = None if blocks is None else _names(blocks.header, blocks.width, declared)
        if blocks is None or declared is not None or names is None:
            return declared if names else None
        forms = blocks.forms()
        if forms is None:
            return None
        return StructType([StructField(n, decide(b)) for n, b in zip(names, forms, strict=True)])

    def blocks_on_driver(
        self, plan: StreamPlan, struct: StructType, parts: Sequence[FilePart]
    ) -> DriverBlocks | None:
        blocks = None if self._plain is None else csv_blocks(self._plain, parts)
        places = None if blocks is None else self._places(blocks, plan, struct)
        if blocks is None or places is None:
            return None
        fields = [struct[name] for name in plan.columns]
        schema = struct_to_arrow(StructType(fields))
        types = [field.dataType for field in fields]
        readers = [
            partial(_typed_block, blocks, block, places, types, schema) for block in blocks.ranges
        ]
        is_sure = all(blocks.keeps(block, places, types) for block in blocks.ranges)
        return DriverBlocks(schema, readers, is_sure)

    def _places(self, blocks: CsvBlocks, plan: StreamPlan, struct: StructType) -> list[int] | None:
        """Return where files have the plan's columns; None if their names do not fit.

        A file is read by its own header, if that names the catalog's columns.
        """
        header, declared = blocks.header, struct if self.stream.schema else None
        names = _names(header, blocks.width, declared)
        if names is None or (declared is None and list(names) != struct.names):
            return None
        # Names by position say nothing about the header of another file.
        if declared is not None and header is not None and names != unique_names(header):
            return None
        if not {*plan.columns} <= {*names} & {*struct.names}:
            return None
        return [names.index(name) for name in plan.columns]

    def _finished(self, url: str, size: int) -> int:
        """Return the end of the lines that may be read, without a last line that waits."""
        start = unfinished_line(url, 0, size)
        return size if start is None else start
