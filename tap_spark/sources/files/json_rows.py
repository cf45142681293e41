"""JSON lines and documents as rows, exactly: by Arrow's reader or record by record.

Arrow's reader is strict, and refuses what it would change. Blocks that it refuses, and those whose
numbers or names it may not keep, are read line by line; the first line that cannot be kept as it is
written ends a task with its file, its line and the reason. Documents must hold one value each:
Spark reads only the first, and says nothing.

Why beside the target's readers: rows without a declared schema, in Spark's types.
"""

from __future__ import annotations

import json
import math
import pickle
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from shared.formats.arrow_types import holds, struct_to_arrow
from shared.formats.fast_json import BlockRefused, FastReader, framed_lines
from shared.formats.json_text import NON_FINITE, Number, Refused, line_count, shown_value
from shared.formats.json_text import text as checked_text
from shared.formats.json_values import field_values
from shared.storage.files import open_input
from tap_spark.sources.files import json_kinds
from tap_spark.sources.files.json_kinds import (
    Kind,
    LongNumbers,
    UnquotedValues,
    UnsureKindError,
    expect,
    read_name,
    skip,
    unquoted_values,
)
from tap_spark.sources.files.line_reader import (
    BOM,
    ENCODING_HINT,
    LineRange,
    line_blocks,
    utf8_of,
)
from tap_spark.sources.frame_helpers import frame_of_parts
from tap_spark.sources.source_failures import row_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


BLOCK_BYTES = 1024 * 1024
READ_BYTES = 4 * 1024 * 1024
KINDS_SCHEMA = "kinds binary"
SEVERAL = "the file holds several JSON values, of which only one would be read"
SEVERAL_HINT = "write one object per line without 'multiLine', or put the values into one array"
NO_OBJECT = (
    "it is not a JSON object; of one document in several lines name the array of its records by "
    "`records_path`"
)
HINT = (
    "correct the file; if the type of its values has changed, run --discover again or set 'schema'"
)
_SUPPORTED = (
    *(T.StringType, T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType),
    *(T.DoubleType, T.DecimalType, T.DateType, T.TimestampType, T.BinaryType),
    *(T.FloatType, T.TimestampNTZType),
)
_BY_RECORD = (T.FloatType, T.TimestampNTZType, T.MapType)
"""Types whose values Arrow's reader may change."""
_FINER = re.compile(rb":[0-9]{2}\.[0-9]{7}")
_FINE_TEXT = re.compile(r":[0-9]{2}\.[0-9]{6}[0-9]*[1-9]")
_ZONED = re.compile(r"[Tt ].*[-+Zz]")
_NAME = rb'"(%s)"\s*:'
VALUE_BYTES = 32
ROW_BYTES = 256 * 1024 * 1024
"""Bound of memory: about the bytes of a value, and those of the rows of a block with their names.
They may be far more than those of the file, if most values are missing."""


class BadLineError(Exception):
    """A line cannot be read as it is written, for a reason."""

    def __init__(self, line: bytes, reason: str) -> None:
        super().__init__(reason)
        self.line, self.reason = line, reason


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Refused(f"an object has the name {shown_value(twice)} twice")
    return record


_DECODER = json.JSONDecoder(
    parse_float=Number,
    parse_int=Number,
    parse_constant=NON_FINITE.__getitem__,
    object_pairs_hook=_distinct,
)


def decoded(line: bytes) -> Any:
    """Return the value of a line; numbers are still text.

    Raises:
        Refused: It is not strict JSON.
    """
    try:
        value = _DECODER.decode(line.decode())
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8: byte {error.start + 1} of the line") from None
    except RecursionError:
        raise Refused("values are nested too deeply") from None
    except Refused:
        raise
    except (ValueError, KeyError) as error:
        raise Refused(f"not JSON: {error}") from None
    _check_text(value)
    return value


def decoded_objects(line: bytes) -> list[dict[str, Any]]:
    """Return the objects of a line, several if it holds an array; numbers are still text.

    Raises:
        Refused: It is not strict JSON, or not an object or an array of objects.
    """
    value = decoded(line)
    records = value if isinstance(value, list) else [value]
    for record in records:
        if not isinstance(record, dict):
            raise Refused(f"not a JSON object: {shown_value(record)}")
    return records


def _check_text(value: Any) -> None:
    """Refuse text that is not Unicode, in names too."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_text(name)
            _check_text(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_text(inner)
    elif type(value) is str:
        checked_text(value)


def is_supported(dtype: T.DataType) -> bool:
    """Return whether `JsonRows` reads columns of a type."""
    if isinstance(dtype, T.StructType):
        return all(is_supported(field.dataType) for field in dtype.fields)
    if isinstance(dtype, T.ArrayType):
        return is_supported(dtype.elementType)
    if isinstance(dtype, T.MapType):
        return dtype.keyType == T.StringType() and is_supported(dtype.valueType)
    return type(dtype) in _SUPPORTED and (
        not isinstance(dtype, T.StringType) or dtype == T.StringType()
    )


@dataclass(frozen=True)
class JsonRows:
    """Reads blocks of lines as rows of columns.

    Attributes:
        struct: The columns.
        case_sensitive: Whether names that differ by case only are different columns.
    """

    struct: T.StructType
    case_sensitive: bool = False

    def __call__(self, data: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the rows of whole lines; raises as `table`."""
        yield from self.table(data).to_batches()

    def table(self, data: bytes) -> pa.Table:
        """Return the rows of whole lines.

        Raises:
            BadLineError: A line cannot be kept as it is written.
        """
        try:
            return self._by_arrow(data)
        except BlockRefused:
            return self._by_record(data)

    @cached_property
    def _schema(self) -> pa.Schema:
        return struct_to_arrow(self.struct)

    @cached_property
    def _fast(self) -> FastReader:
        return FastReader(
            self.struct, self._schema, free_form=False, envelope=False, strict=True, closed=True
        )

    @cached_property
    def _values(self) -> Callable[[Mapping[str, Any]], list[Any]]:
        return field_values(self.struct, strict=True)

    @cached_property
    def _numbers(self) -> LongNumbers:
        return LongNumbers(self.struct)

    @cached_property
    def _quoting(self) -> UnquotedValues | None:
        return unquoted_values(self.struct)

    @cached_property
    def _names(self) -> tuple[re.Pattern[bytes], frozenset[bytes]]:
        """Return a pattern of names in any case, and the names as they are."""
        names = frozenset(name.encode() for name in all_names(self.struct))
        words = b"|".join(map(re.escape, sorted(names)))
        return re.compile(_NAME % words, re.IGNORECASE), names

    def _by_arrow(self, data: bytes) -> pa.Table:
        by_record = holds(self.struct, _BY_RECORD)
        if by_record or not self._numbers.are_kept(data) or _FINER.search(data):
            raise BlockRefused
        block = self._fast.read(data)
        if block.unexpected and not self.case_sensitive:
            pattern, names = self._names
            # Only the exact reader compares names with escapes, and those of other alphabets.
            is_plain = all(map(bytes.isascii, names)) and b"\\u" not in data
            if not is_plain or not {*pattern.findall(data)} <= names:
                for line in filter(bytes.strip, data.split(b"\n")):
                    self._checked(line)
        return block.table

    def _by_record(self, data: bytes) -> pa.Table:
        columns: list[list[Any]] = [[] for _ in self.struct.fields]
        for line in data.split(b"\n"):
            if line.strip(b" \t\r"):
                for record in self._checked(line):
                    self._add(record, line, columns)
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(columns, self._schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def _checked(self, line: bytes) -> list[dict[str, Any]]:
        try:
            records = decoded_objects(line)
            if self._quoting is not None:
                records = decoded_objects(self._quoting.quoted(line))
            for record in records:
                _check(record, self.struct, self.case_sensitive)
        except Refused as refused:
            raise BadLineError(line, str(refused)) from None
        except RecursionError:
            raise BadLineError(line, "values are nested too deeply") from None
        return records

    def _add(self, record: dict[str, Any], line: bytes, columns: list[list[Any]]) -> None:
        try:
            values = self._values(record)
        except Refused as refused:
            raise BadLineError(line, str(refused)) from None
        except RecursionError:
            raise BadLineError(line, "values are nested too deeply") from None
        for column, value in zip(columns, values, strict=True):
            column.append(value)


def all_names(dtype: T.DataType) -> Iterator[str]:
    """Yield the names of fields at any depth."""
    if isinstance(dtype, T.StructType):
        for field in dtype.fields:
            yield field.name
            yield from all_names(field.dataType)
    elif isinstance(dtype, T.ArrayType):
        yield from all_names(dtype.elementType)


def _check(value: Any, dtype: T.DataType, case_sensitive: bool) -> None:
    """Refuse what a type would round, and names that differ from a column's by case only."""
    if isinstance(dtype, T.StructType) and isinstance(value, dict):
        lower = {} if case_sensitive else {name.lower(): name for name in dtype.names}
        for name in value.keys() - {*dtype.names}:
            if name.lower() in lower:
                column = lower[name.lower()]
                raise Refused(
                    f"property {shown_value(name)} differs from the column {shown_value(column)} "
                    "by case only"
                )
        for field in dtype.fields:
            try:
                _check(value.get(field.name), field.dataType, case_sensitive)
            except Refused as refused:
                raise refused.under(field.name) from None
    elif isinstance(dtype, T.ArrayType) and isinstance(value, list):
        for number, inner in enumerate(value):
            try:
                _check(inner, dtype.elementType, case_sensitive)
            except Refused as refused:
                raise refused.under(f"[{number}]") from None
    elif isinstance(dtype, T.MapType) and isinstance(value, dict):
        of_values = T.StructType([T.StructField(name, dtype.valueType) for name in value])
        _check(value, of_values, case_sensitive)
    else:
        _check_leaf(value, dtype)


def _check_leaf(value: Any, dtype: T.DataType) -> None:
    why = ""
    if isinstance(dtype, T.DoubleType | T.FloatType) and type(value) is Number:
        kept = json_kinds.number_kind(str(value)).in_double
        if kept and isinstance(dtype, T.FloatType):
            single = pa.scalar(str(value)).cast(pa.float32()).cast(pa.string())
            kept = Decimal(single.as_py()) == Decimal(value)
        why = "" if kept else "as written"
    elif isinstance(dtype, T.TimestampType | T.TimestampNTZType) and isinstance(value, str):
        if _FINE_TEXT.search(value):
            why = "as it is finer than microseconds"
        elif isinstance(dtype, T.TimestampNTZType) and _ZONED.search(value):
            why = "as it has a time zone"
    if why:
        raise Refused(f"type {dtype.typeName()} cannot keep {shown_value(value)} {why}")


def kinds_of(data: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the kinds of the columns of whole lines, as one pickled value."""
    kind = pickle.dumps(kind_of_lines(data))
    yield pa.RecordBatch.from_pydict({"kinds": pa.array([kind], pa.binary())})


def kind_of_lines(data: bytes) -> Kind:
    """Return the kinds of the columns of whole lines.

    Raises:
        BadLineError: A line is not JSON, or has a value that is no object.
    """
    return json_kinds.merged_all(map(_kind_of_part, bounded_parts(data)))


def bounded_parts(data: bytes) -> Iterator[bytes]:
    """Yield whole lines in parts whose rows, with a value for each name, take at most `ROW_BYTES`.

    Arrow keeps a null for each name that a line lacks. No more names than colons are there.
    """
    excess = line_count(data) * data.count(b":") * VALUE_BYTES / ROW_BYTES
    if excess <= 1:
        yield data
        return
    # Half of the lines with half of the names take a quarter.
    step = int(len(data) / (math.sqrt(excess) + 1))
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + step) + 1 or len(data)
        part = data[start:end]
        yield from bounded_parts(part) if len(part) < len(data) else (part,)
        start = end


def _kind_of_part(data: bytes) -> Kind:
    try:
        return _kind_by_arrow(data)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, BlockRefused, UnsureKindError):
        return json_kinds.merged_all(_kinds_by_record(data))


def is_sparse(data: bytes, names: Iterable[str]) -> bool:
    """Return whether rows with a value for each of these names may take more than `ROW_BYTES`."""
    return line_count(data) * sum(VALUE_BYTES + len(name) for name in names) > ROW_BYTES


def _kind_by_arrow(data: bytes) -> Kind:
    import pyarrow.json as pj  # noqa: PLC0415

    lines = framed_lines(data)
    try:
        data.decode()
    except UnicodeDecodeError:
        raise UnsureKindError from None
    options = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
    table = pj.read_json(pa.BufferReader(data), options)
    if table.num_rows != lines:
        raise UnsureKindError
    kind: Kind = {
        name: json_kinds.kind_of_column(column)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    if not LongNumbers(json_kinds.type_of(kind)).are_kept(data):
        raise UnsureKindError
    return kind


def _kinds_by_record(data: bytes) -> Iterator[Kind]:
    for line in data.split(b"\n"):
        if line.strip(b" \t\r"):
            try:
                kinds = [json_kinds.json_kind(record) for record in decoded_objects(line)]
            except Refused as refused:
                raise BadLineError(line, str(refused)) from None
            yield from kinds


@dataclass(frozen=True)
class JsonTask:
    """Reads ranges of files; a compressed file or a document is one range.

    Attributes:
        read: What to do with a block of lines.
        document: Whether each file is one JSON value.
        path: Names that lead to the array of records in a document.
        number: The name of a further column, the index of the file; empty for none.
    """

    read: Callable[[bytes], Iterator[pa.RecordBatch]]
    document: bool = False
    path: tuple[str, ...] = ()
    number: str = ""

    def __call__(self, ranges: Iterable[LineRange]) -> Iterator[pa.RecordBatch]:
        """Yield what `read` makes of the lines or documents."""
        for part in ranges:
            yield from self._part(part)

    def _part(self, part: LineRange) -> Iterator[pa.RecordBatch]:
        try:
            for block in self._blocks(part):
                for batch in self.read(block):
                    yield self._numbered(batch, part.number)
        except BadLineError as bad:
            problem = f"a row cannot be read: {bad.reason}{self._place(part, bad.line)}"
            value = bad.line[:1000].decode("utf-8", "replace")
            hint = self._hint(bad.reason)
            text = row_failure(problem=problem, value=value, file=part.url, hint=hint)
            raise RuntimeError(text) from None
        except Refused as refused:
            text = row_failure(problem=str(refused), file=part.url, hint=self._hint(str(refused)))
            raise RuntimeError(text) from None
        except (OSError, pa.ArrowInvalid) as error:
            problem = f"the file cannot be read: {error}"
            raise RuntimeError(row_failure(problem=problem, file=part.url)) from error

    def _hint(self, reason: str) -> str:
        if reason.startswith("not UTF-8"):
            return ENCODING_HINT
        if reason == SEVERAL:
            return SEVERAL_HINT
        return NO_OBJECT if reason.startswith("not ") and not self.document else HINT

    def _numbered(self, batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
        if not self.number:
            return batch
        numbers = pa.repeat(pa.scalar(number, pa.int32()), len(batch))
        names = [*batch.schema.names, self.number]
        return pa.RecordBatch.from_arrays([*batch.columns, numbers], names)

    def _blocks(self, part: LineRange) -> Iterator[bytes]:
        return _document_blocks(part, self.path) if self.document else line_blocks(part)

    def _place(self, part: LineRange, line: bytes) -> str:
        if self.document:
            return ""
        whole = replace(part, start=0, stop=part.limit, aligned=True)
        lines = (line for block in self._blocks(whole) for line in _lines_of(block))
        for number, other in enumerate(lines, 1):
            if other == line:
                return f" (line {number})"
        return ""


def _lines_of(block: bytes) -> list[bytes]:
    lines = block.split(b"\n")
    return lines[:-1] if block.endswith(b"\n") else lines


def _document_blocks(part: LineRange, path: Sequence[str]) -> Iterator[bytes]:
    """Yield the records of a document as lines, some at once."""
    with open_input(part.url) as file:
        data = utf8_of(bytes(file.read()), 0, part.url, part.rules.encoding)
    try:
        text = data.removeprefix(BOM).decode()
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8: byte {error.start + 1} of the file") from None
    del data
    lines: list[str] = []
    size = 0
    for record in document_records(text, path):
        # Line ends are never inside strings.
        lines.append(record.replace("\r", " ").replace("\n", " "))
        size += len(record)
        if size > BLOCK_BYTES:
            yield ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
            lines, size = [], 0
    if lines:
        yield ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


def document_records(text: str, path: Sequence[str]) -> Iterator[str]:
    """Yield the text of each record of a document.

    Args:
        text: The document; blank for none.
        path: Names that lead to the array of records; none if the document is the array.

    Raises:
        Refused: It is not one strict JSON value, or does not have the path.
    """
    start = skip(text, 0)
    if start == len(text):
        return
    try:
        end = yield from _records(text, start, path, ".".join(path))
    except Refused:
        raise
    except IndexError:
        raise Refused("not JSON: the file ends within a value") from None
    except RecursionError:
        raise Refused("values are nested too deeply") from None
    except ValueError as error:
        raise Refused(f"not JSON: {error}") from None
    rest = text[skip(text, end) :][:1]
    if rest:
        raise Refused(
            SEVERAL if rest in "[{" else f"not JSON: {shown_value(rest)} after the document"
        )


def _records(text: str, at: int, path: Sequence[str], whole: str) -> Generator[str, None, int]:
    """Yield the records of the value that starts here; return its end."""
    if path and text[at] == "{":
        end = yield from _records_of_object(text, at, path, whole)
        return end
    if path:
        raise Refused(f"records_path '{whole}' is not in the documents")
    if text[at] == "[":
        end = yield from _elements(text, at)
        return end
    if whole:
        raise Refused(f"records_path '{whole}' is not an array of objects")
    end = _value_end(text, at)
    yield text[at:end]
    return end


def _elements(text: str, at: int) -> Generator[str, None, int]:
    at = skip(text, at + 1)
    if text[at] == "]":
        return at + 1
    while True:
        end = _value_end(text, at)
        if text[at] != "{":
            raise Refused(f"not a JSON object: {shown_value(text[at:end][:60])}")
        yield text[at:end]
        at = skip(text, end)
        if text[at] == "]":
            return at + 1
        expect(text, at, ",")
        at = skip(text, at + 1)


def _records_of_object(
    text: str, at: int, path: Sequence[str], whole: str
) -> Generator[str, None, int]:
    names: list[str] = []
    at = skip(text, at + 1)
    while text[at] != "}":
        name, at = read_name(text, at)
        if name == path[0] and name in names:
            raise Refused(f"an object has the name {shown_value(name)} twice")
        names.append(name)
        if name == path[0]:
            at = yield from _records(text, at, path[1:], whole)
        else:
            at = _value_end(text, at)
        at = skip(text, at)
        if text[at] == ",":
            at = skip(text, at + 1)
            expect(text, at, '"')
        else:
            expect(text, at, "}")
    if path[0] not in names:
        here = ", ".join(names[:20]) or "no properties there"
        raise Refused(f"records_path '{whole}' is not in the documents, which have {here}")
    return at + 1


def _value_end(text: str, at: int) -> int:
    try:
        return int(_DECODER.raw_decode(text, at)[1])
    except KeyError as error:
        raise Refused(f"not JSON: {error}") from None


LONGEST_LINE = 64 * 1024 * 1024
MAX_TASKS = 32
# Within one JSON value, no other value can begin right after the end of an array or object.
_NEXT = re.compile(rb"[}\]]\s*[{\[]")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def checked_documents(frame: DataFrame, urls: Sequence[str]) -> DataFrame:
    """Return what Spark reads from some documents; it fails if one of them holds several values."""
    if not urls:
        return frame
    nothing = frame_of_parts(frame.sparkSession, urls, _checked_document, "nothing int", MAX_TASKS)
    columns = (F.lit(None).cast(f.dataType).alias(f.name) for f in frame.schema.fields)
    return frame.unionAll(nothing.select(*columns))


def several_values(blocks: Iterable[bytes]) -> bool:
    """Return whether the text of some blocks holds an array or object after its first one.

    Lines of more than `LONGEST_LINE` bytes are skipped.
    """
    carried = b""
    skipping = False
    for block in blocks:
        before, end, after = block.partition(b"\n") if skipping else (b"", b"", block)
        skipping = skipping and not end
        text = carried + (before if skipping else after)
        # Line ends are never within strings; the last line with a value may still go on.
        start = text.rstrip().rfind(b"\n") + 1
        if _after_line_end(text) or _begins_again(text[:start]):
            return True
        carried = text[start:]
        if len(carried) > LONGEST_LINE or skipping:
            carried, skipping = b"", True
    return _begins_again(carried)


def _after_line_end(text: bytes) -> bool:
    return any(b"\n" in match.group() for match in _NEXT.finditer(text))


def _begins_again(lines: bytes) -> bool:
    # What looks like two values may be inside a string.
    return _NEXT.search(lines) is not None and _NEXT.search(_STRING.sub(b"", lines)) is not None


def _checked_document(url: str) -> Iterator[pa.RecordBatch]:
    if several_values(_blocks(url)):
        raise RuntimeError(row_failure(problem=SEVERAL, file=url, hint=SEVERAL_HINT))
    yield pa.RecordBatch.from_pydict({"nothing": pa.array([], pa.int32())})


def _blocks(url: str) -> Iterator[bytes]:
    with open_input(url) as file:
        block = bytes(file.read(READ_BYTES))
        if not block.removeprefix(BOM).lstrip().startswith((b"{", b"[")):
            return
        while block:
            yield block
            block = bytes(file.read(READ_BYTES))
