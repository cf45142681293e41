"""`get_batches`: batch files from records in Python, without Spark."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

from shared.batch_config import validate
from shared.encodings.encoding_format import FORMATS, Encoding, EncodingFormat
from shared.errors import RecordError
from shared.formats.json_lines import LineReader
from shared.formats.json_text import json_text
from shared.settings.batch_settings import BatchConfig
from shared.storage.access import StorageOptions
from tap_spark.send.batch_plan import file_names

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_ROWS = 10_000
"""Rows of a file if `batch_size` is not set, as in the SDK."""

_LEAVES = frozenset({str, int, bool, type(None)})
"""Types of most values, which cannot be or hold a number that is not finite."""

Record = Mapping[str, Any]


def get_batches(
    records: Iterable[Record],
    schema: Mapping[str, Any],
    batch_config: BatchConfig | Mapping[str, Any],
    *,
    tap_name: str = "tap-spark",
    stream_name: str = "records",
) -> Iterator[tuple[Encoding, list[str]]]:
    """Write records to batch files, and yield the content of a BATCH message for each file.

    Does what `Stream.get_batches` of the Meltano SDK does: yields an encoding and a manifest per
    batch. The types come from the schema, never from the first records. One file of records is
    held in memory.

    Args:
        records: JSON values, and dates, datetimes, times, `Decimal` and bytes.
        schema: The stream's JSON Schema.
        batch_config: The settings block (with `storage.root`), validated or as written.
        tap_name: Part of the file names.
        stream_name: Part of the file names.

    Yields:
        The encoding, and the URLs of a batch (one file each).

    Raises:
        SettingsError: The block is invalid.
        RecordError: A record does not fit the schema (columnar formats only).
        OSError: A file cannot be written.
    """
    from tap_spark.send.batch_tasks import BatchFileWriter  # noqa: PLC0415

    config = _checked(batch_config)
    form = FORMATS[config.format]
    extension = form.extension(config.compression)
    tables = _tables(records, schema, form, config.batch_size or DEFAULT_ROWS)
    encoding = Encoding(config.format, config.compression)
    names = file_names(config.root or "", config.prefix, tap_name, stream_name, extension)
    for number, table in enumerate(tables, start=1):
        writer = BatchFileWriter(
            encoding,
            names,
            table.schema,
            StorageOptions(config.options),
            level=config.compression_level,
        )
        url = names.url(0, number)
        with _without_marks():
            writer.write(url, [table])
        yield encoding, [url]


@contextmanager
def _without_marks() -> Iterator[None]:
    """Raise failures of the storage without the mark for executors."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        raise error.__cause__ from None


def _checked(settings: BatchConfig | Mapping[str, Any]) -> BatchConfig:
    if isinstance(settings, BatchConfig):
        return settings
    config = validate({"batch_config": settings}, "tap").check().batch_config
    return config or BatchConfig()


def _tables(
    records: Iterable[Record], schema: Mapping[str, Any], form: EncodingFormat, size: int
) -> Iterator[pa.Table]:
    import pyarrow as pa  # noqa: PLC0415

    lines = map(_line, records)
    while portion := list(islice(lines, size)):
        if form.rows == "lines":
            yield pa.table({"line": pa.array([b"".join(portion).decode()], pa.large_string())})
        else:
            yield _typed(b"".join(portion), schema, flat=form.rows == "texts")


def _typed(lines: bytes, schema: Mapping[str, Any], *, flat: bool) -> pa.Table:
    read = LineReader(schema, envelope=False, strict=True).read(lines)
    if read.rejects:
        row, reason = read.rejects[0]
        raise RecordError(f"record {row + 1} of a batch does not fit the schema: {reason}")
    return _flattened(read.table) if flat else read.table


def _flattened(table: pa.Table) -> pa.Table:
    """Convert nested columns to JSON text."""
    import pyarrow as pa  # noqa: PLC0415

    for position, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            column = table.column(position).to_pylist(maps_as_pydicts="lossy")
            values = (None if value is None else _text(value) for value in column)
            table = table.set_column(position, field.name, pa.array(values, pa.string()))
    return table


def _line(record: Record) -> bytes:
    return _text(record).encode() + b"\n"


def _text(value: Any) -> str:
    """Write a value as JSON; decimals keep every digit, NaN and infinities are their names."""
    import orjson  # noqa: PLC0415

    with suppress(orjson.JSONEncodeError):  # integers beyond 64 bits, lone surrogates
        text = orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
        if b"null" not in text or not _has_constant(value):
            return text.decode()
    if isinstance(value, Mapping):
        items = (f"{_key(key)}:{_text(item)}" for key, item in value.items())
        return "{" + ",".join(items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    return json_text(float(value)) if _has_constant(value) else json.dumps(value, default=_plain)


def _key(key: Any) -> str:
    import orjson  # noqa: PLC0415

    with suppress(orjson.JSONEncodeError):  # lone surrogates
        return orjson.dumps({key: 0}, option=orjson.OPT_NON_STR_KEYS)[1:-3].decode()
    return json.dumps({key: 0})[1:-4]


def _has_constant(value: Any) -> bool:
    """Return whether there is NaN or an infinity, which orjson writes as null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return False
    return any(_has_constant(item) for item in value if type(item) not in _LEAVES)


def _plain(value: Any) -> Any:
    import base64  # noqa: PLC0415

    import orjson  # noqa: PLC0415

    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f")) if value.is_finite() else str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
