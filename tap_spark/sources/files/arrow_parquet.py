"""Parquet and ORC files of other writers that Spark refuses, read by Arrow on executors."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from shared.formats.arrow_types import struct_to_arrow, with_parts
from shared.formats.row_groups import spark_reads
from shared.storage.files import open_random
from tap_spark.sources.frame_helpers import frame_of_parts, without_void
from tap_spark.sources.source_failures import row_failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10_000
READERS = 8
MOST_BY_DRIVER = 100
"""Files whose footers the driver reads."""
MOST_TASKS = 200
FACTS = "is_unreadable boolean, instants array<string>, finer array<string>"
_FACTS = pa.schema(
    {
        "is_unreadable": pa.bool_(),
        "instants": pa.list_(pa.string()),
        "finer": pa.list_(pa.string()),
    }
)
_OF_SPARK = b"org.apache.spark.version"
"""In footers of Spark, whose timestamps have no nanoseconds."""
_MAX_DIGITS = 38
_REMEDY = "let its writer cast the column, or leave the column out"
_FINER_REMEDY = "to keep all its digits, give the column the type STRING by 'schema'"
_WIDER: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}
_PLAIN = {pa.bool_(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32()}
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


class NoCommonTypeError(Exception):
    """A column has no type that Spark has, or that its files have in common."""


def parquet_schema(url: str, kind: str) -> pa.Schema:
    """Read the columns of a file of Parquet or ORC."""
    with open_random(url) as file:
        if kind == "orc":
            return orc.ORCFile(file).schema
        parquet = pq.ParquetFile(file)
        schema = parquet.schema_arrow
        for name in _int96_columns(parquet):
            # Instants to Spark, which Arrow does not know.
            field = pa.field(name, pa.timestamp("us", "UTC"))
            schema = schema.set(schema.get_field_index(name), field)
        return schema


def _int96_columns(file: pq.ParquetFile) -> list[str]:
    """Return the columns of `INT96`, not those inside of others."""
    leaves = map(file.schema.column, range(len(file.schema)))
    paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
    return [path for path in paths if path in file.schema_arrow.names]


def arrow_struct(
    urls: Sequence[str], kind: str = "parquet", *, case_sensitive: bool = False
) -> StructType:
    """Return the columns of all files, with types that keep every value.

    Raises:
        NoCommonTypeError: A column has none, or names differ by case only, unless these are
            `case_sensitive`; names the column and the files.
        OSError: A file cannot be read.
    """
    kinds: dict[str, pa.DataType] = {}
    seen: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for url in urls:
        schema = parquet_schema(url, kind)
        twice = [name for name, count in Counter(schema.names).items() if count > 1]
        if twice:
            raise NoCommonTypeError(f"column '{twice[0]}' is there twice in '{url}'")
        for field in schema:
            own = storage_type(field.type)
            both = own if own is None else _merged(kinds.get(field.name, pa.null()), own)
            other = spelled.setdefault(field.name.lower(), field.name)
            if other != field.name and not case_sensitive:
                names = f"'{field.name}' of '{url}' and '{other}' of '{seen[other]}'"
                raise NoCommonTypeError(f"the columns {names} differ by case only")
            if both is None or (_has_alike_fields(both) and not case_sensitive):
                raise NoCommonTypeError(_disagreement(field, url, kinds, seen))
            kinds[field.name] = both
            seen.setdefault(field.name, url)
    types = ((name, from_arrow_type(k, prefer_timestamp_ntz=True)) for name, k in kinds.items())
    struct = StructType([StructField(name, dtype, True) for name, dtype in types])
    return without_void(struct)  # type: ignore[no-any-return]


def _disagreement(
    field: pa.Field, url: str, kinds: Mapping[str, pa.DataType], seen: Mapping[str, str]
) -> str:
    text = f"column '{field.name}' is {field.type} in '{url}'"
    if field.name not in seen:
        return f"{text}, a type that Spark does not have"
    return f"{text}, and {kinds[field.name]} in '{seen[field.name]}'"


def _has_alike_fields(kind: pa.DataType) -> bool:
    """Return whether fields of a type differ by case only."""
    fields = [kind.field(number) for number in range(kind.num_fields)]
    return len({field.name.lower() for field in fields}) < len(fields) or any(
        _has_alike_fields(field.type) for field in fields
    )


@dataclass(frozen=True)
class FooterFacts:
    """What Spark does not say of a file.

    Attributes:
        is_unreadable: It has columns in a codec or an encoding that Spark does not read.
        instants: Columns of `INT96`, whose nanoseconds Spark cuts and Arrow does not.
        finer: Columns of timestamps whose nanoseconds both cut.
    """

    is_unreadable: bool = False
    instants: tuple[str, ...] = ()
    finer: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Return whether Spark does not read the file exactly, and Arrow does."""
        return self.is_unreadable or bool(self.instants)


def parquet_facts(url: str) -> FooterFacts:
    """Read what Spark does not say from the footer of a Parquet file."""
    with open_random(url) as file:
        parquet = pq.ParquetFile(file)
        footer, instants = parquet.metadata, _int96_columns(parquet)
    is_unreadable = not spark_reads(footer)
    if _OF_SPARK in (footer.metadata or {}):
        return FooterFacts(is_unreadable)
    leaves = map(footer.schema.column, range(footer.num_columns))
    finer = [c.path for c in leaves if c.physical_type == "INT96" and c.path not in instants]
    return FooterFacts(is_unreadable, tuple(instants), tuple(finer))


def orc_facts(url: str) -> FooterFacts:
    """Read what Spark does not say from the footer of an ORC file."""
    with open_random(url) as file:
        footer = orc.ORCFile(file)
        if _OF_SPARK in (footer.metadata or {}):
            return FooterFacts()
        return FooterFacts(finer=tuple(f.name for f in footer.schema if "timestamp" in str(f.type)))


def all_facts(
    spark: SparkSession, urls: Sequence[str], read: Callable[[str], FooterFacts]
) -> list[FooterFacts]:
    """Return the facts of each file, by executors if there are many."""
    if len(urls) <= MOST_BY_DRIVER:
        with ThreadPoolExecutor(READERS) as threads:
            return list(threads.map(read, urls))

    def row(url: str) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([asdict(read(url))], _FACTS)

    return [
        FooterFacts(facts.is_unreadable, tuple(facts.instants), tuple(facts.finer))
        for facts in frame_of_parts(spark, urls, row, FACTS, MOST_TASKS).collect()
    ]


@dataclass(frozen=True)
class ParquetRows:
    """Reads the columns of files of Parquet or ORC."""

    struct: StructType
    kind: str = "parquet"

    def __call__(self, url: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file."""
        wanted = struct_to_arrow(self.struct)
        try:
            with open_random(url) as file:
                for batch, nanos in _batches(file, self.kind, wanted.names):
                    columns = [_column(batch, nanos, field, url) for field in wanted]
                    yield pa.RecordBatch.from_arrays(columns, schema=wanted)
        except (OSError, pa.ArrowException) as error:
            problem = f"the file cannot be read: {error}"
            raise RuntimeError(row_failure(problem=problem, file=url)) from error


def _batches(
    file: pa.NativeFile, kind: str, names: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch, Mapping[str, pa.Array]]]:
    """Read those columns that a file has, and those of `INT96` in nanoseconds, too."""
    if kind == "orc":
        source = orc.ORCFile(file)
        own = [name for name in names if name in source.schema.names]
        for number in range(source.nstripes):
            stripe = source.read_stripe(number, own)
            yield from ((stripe.slice(start, ROWS), {}) for start in range(0, len(stripe), ROWS))
        return
    # Nanoseconds alone would take years before 1677 and after 2262 for others.
    parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    own = [name for name in names if name in parquet.schema_arrow.names]
    instants = [name for name in _int96_columns(parquet) if name in own]
    if not instants:
        yield from ((batch, {}) for batch in parquet.iter_batches(ROWS, columns=own))
        return
    exact = pq.ParquetFile(file, coerce_int96_timestamp_unit="ns")
    for group in range(parquet.num_row_groups):
        nanos = exact.read_row_group(group, instants).combine_chunks()
        start = 0
        for batch in parquet.iter_batches(ROWS, row_groups=[group], columns=own):
            part = nanos.slice(start, len(batch))
            start += len(batch)
            yield batch, {name: part[name].combine_chunks() for name in instants}


def _column(
    batch: pa.RecordBatch, nanos: Mapping[str, pa.Array], field: pa.Field, url: str
) -> pa.Array:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    values = batch.column(field.name)
    try:
        if field.name in nanos:
            return _of_int96(values, nanos[field.name], field.type)
        return in_type(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        problem = f"column '{field.name}' holds a value that type {field.type} cannot keep: {error}"
        hint = _FINER_REMEDY if pa.types.is_timestamp(values.type) else _REMEDY
        raise RuntimeError(row_failure(problem=problem, file=url, hint=hint)) from None


def _of_int96(values: pa.Array, nanos: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return instants of microseconds, or texts of nanoseconds.

    Args:
        values: The instants in microseconds, cut.
        nanos: The same in nanoseconds, modulo 2**64.
        kind: The type.
    """
    micros = pc.cast(values, pa.int64())
    rest = pc.subtract(pc.cast(nanos, pa.int64()), pc.multiply(micros, 1000))
    if pa.types.is_string(kind):
        digits = pc.utf8_lpad(pc.cast(rest, kind), 3, "0")
        return pc.binary_join_element_wise(time_texts(values), digits, "Z", "")
    if pc.any(pc.not_equal(rest, 0)).as_py():
        first = values.filter(pc.not_equal(rest, 0))[0]
        raise pa.ArrowInvalid(f"{first} and nanoseconds")
    return pc.cast(values, kind)


def time_texts(values: pa.Array) -> pa.Array:
    """Return timestamps as ISO 8601, with all digits of their unit."""
    return pc.replace_substring(pc.cast(values, pa.string()), " ", "T")


def in_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values in another type, without the loss of one."""
    if array.type.equals(kind):
        return array
    if pa.types.is_struct(array.type) and pa.types.is_struct(kind):
        _check_spelling(array.type, kind)
    if pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        array = pc.cast(array, pa.list_(array.type.value_field))
    whole = with_parts(array, kind, lambda part, own, _: in_type(part, own))
    if whole is not None:
        return whole
    if _is_uuid(array.type):
        texts = [None if v is None else str(uuid.UUID(bytes=v)) for v in array.storage.to_pylist()]
        return pa.array(texts, kind)
    if pa.types.is_timestamp(array.type) and pa.types.is_string(kind):
        return time_texts(array)
    return pc.cast(array, kind)


def _check_spelling(own: pa.StructType, wanted: pa.StructType) -> None:
    """Raise an error if a field has another name by case only, which would make it null."""
    names = {field.name for field in own}
    lower = {name.lower(): name for name in names}
    for field in wanted:
        other = lower.get(field.name.lower())
        if other is not None and field.name not in names:
            raise pa.ArrowInvalid(f"the field '{field.name}' is spelled '{other}' in the file")


def _is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"


def storage_type(kind: pa.DataType) -> pa.DataType | None:  # noqa: PLR0911
    """Return the type of Spark's that keeps all values of a type; None if there is none."""
    is_ = pa.types
    if kind in _WIDER or kind in _DIGITS or is_.is_null(kind):
        return _WIDER.get(kind, kind)
    if is_.is_struct(kind):
        fields = [(f.name, storage_type(f.type)) for f in kind]
        return None if any(part is None for _, part in fields) else pa.struct(fields)
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        value = storage_type(kind.value_type)
        return None if value is None else pa.list_(pa.field("element", value))
    if is_.is_map(kind):
        return _map_of(storage_type(kind.key_type), storage_type(kind.item_type))
    if is_.is_dictionary(kind):
        return storage_type(kind.value_type)
    if is_.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if is_.is_time(kind) or _is_uuid(kind):
        return pa.string()
    if is_.is_fixed_size_binary(kind):
        return pa.binary()
    if is_.is_decimal(kind):
        fits = kind.precision <= _MAX_DIGITS
        return pa.decimal128(kind.precision, kind.scale) if fits else None
    return kind if kind in _PLAIN else None


def _merged(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that keeps the values of both; None if there is none."""
    is_ = pa.types
    if one.equals(other) or is_.is_null(other):
        return one
    if is_.is_null(one):
        return other
    if is_.is_struct(one) and is_.is_struct(other):
        parts = {f.name: f.type for f in one}
        for field in other:
            parts[field.name] = _merged(parts.get(field.name, pa.null()), field.type)
        whole = all(part is not None for part in parts.values())
        return pa.struct(list(parts.items())) if whole else None
    if is_.is_list(one) and is_.is_list(other):
        value = _merged(one.value_type, other.value_type)
        return None if value is None else pa.list_(pa.field("element", value))
    if is_.is_map(one) and is_.is_map(other):
        key = _merged(one.key_type, other.key_type)
        return _map_of(key, _merged(one.item_type, other.item_type))
    return _merged_numbers(one, other)


def _map_of(key: pa.DataType | None, item: pa.DataType | None) -> pa.DataType | None:
    return None if key is None or item is None else pa.map_(key, item)


def _merged_numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    floats = [kind for kind in (one, other) if pa.types.is_floating(kind)]
    if len(floats) == 2:  # noqa: PLR2004
        return pa.float64()
    shapes = [_shape(kind) for kind in (one, other) if not pa.types.is_floating(kind)]
    if None in shapes:
        return None
    present = [shape for shape in shapes if shape is not None]
    if floats:
        # A double keeps all integers of 32 bits.
        return pa.float64() if present[0][0] <= _DIGITS[pa.int32()] and not present[0][1] else None
    if one in _DIGITS and other in _DIGITS:
        return max(one, other, key=_DIGITS.__getitem__)
    digits, scale = (max(parts) for parts in zip(*present, strict=True))
    return pa.decimal128(digits + scale, scale) if digits + scale <= _MAX_DIGITS else None


def _shape(kind: pa.DataType) -> tuple[int, int] | None:
    """Return the digits before and after the point; None for what is no exact number."""
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    return (kind.precision - kind.scale, kind.scale) if pa.types.is_decimal(kind) else None
