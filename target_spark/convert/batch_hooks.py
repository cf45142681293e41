"""Reading of batch files in Python, for programs that consume BATCH messages themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from shared.errors import MessageError, RecordError, Where
from shared.formats.arrow_types import struct_to_arrow
from shared.formats.file_formats import FORMATS, ContentError, Encoding, bare_lines
from shared.formats.schema_nodes import json_schema_to_spark
from shared.formats.typed_rows import plain_values
from shared.storage.access import StorageOptions
from shared.storage.urls import Roots, join, local_path, shown
from target_spark.convert.batch_files import resolve_files
from target_spark.convert.read_plan import Piece, ReadPlan
from target_spark.convert.read_rows import UnreadableInputError, read_task
from target_spark.convert.read_tables import tables_of
from target_spark.convert.task_reports import Rejects
from target_spark.core.load_plans import InputFile, Reject


def process_batch_files(
    encoding: Mapping[str, Any], storage: Mapping[str, Any] | None, files: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield every record of the files of one BATCH message, in order and bounded memory.

    Like the method of this name in a sink of the Meltano SDK, without the sink. Compression is
    detected by content.

    Args:
        encoding: As in the message: `format` and `compression`; other keys are ignored.
        storage: As in `batch_config.storage`: `root` (for relative names) and `options` of fsspec.
        files: The manifest.

    Yields:
        Records as Python values: for JSON lines as in the SDK (fractions are Decimal), for CSV
        texts and None, for other formats the values of the columns.

    Raises:
        MessageError: A file is missing, damaged or has another encoding; names it.
        RecordError: A line is not a JSON object; names file and line.
    """
    options = _options(storage)
    for file in _resolved(encoding, storage, files):
        if FORMATS[file.encoding.format].rows == "lines":
            yield from _json_records(file.url, options)
        else:
            for rows in _named(file.url, _rows(file, options), options):
                yield from rows


def read_batch_tables(
    encoding: Mapping[str, Any],
    storage: Mapping[str, Any] | None,
    files: Sequence[str],
    schema: Mapping[str, Any],
) -> Iterator[pa.Table]:
    """Yield the records as Arrow tables with the columns and types of a stream.

    Args:
        encoding: As for `process_batch_files`.
        storage: As for `process_batch_files`.
        files: The manifest.
        schema: The stream's JSON Schema from its SCHEMA message.

    Raises:
        MessageError: A file cannot be read.
        RecordError: The first record that does not fit the schema; names file and line or row.
    """
    columns = struct_to_arrow(json_schema_to_spark(schema))
    for file in _resolved(encoding, storage, files):
        rejects = Rejects()
        plan = ReadPlan((), schema, columns, options=_options(storage))
        try:
            for table in read_task(plan, [Piece(file)], rejects):
                if rejects.reported:
                    raise _record_error(rejects.reported[0])
                yield table
        except UnreadableInputError as error:
            raise _unreadable(*error.args[:2]) from error


def _resolved(
    encoding: Mapping[str, Any], storage: Mapping[str, Any] | None, files: Sequence[str]
) -> tuple[InputFile, ...]:
    kind = Encoding(str(encoding.get("format")), str(encoding.get("compression") or "none"))
    root = (storage or {}).get("root")
    supplied = [InputFile(_under(root, name), kind) for name in files]
    return resolve_files(supplied, "")


def _under(root: str | None, name: str) -> str:
    """Return a file name; a relative one is resolved below the root."""
    relative = local_path(name) == name and not name.startswith("/")
    return join(root, name) if root and relative else name


def _options(storage: Mapping[str, Any] | None) -> StorageOptions:
    root = (storage or {}).get("root")
    return StorageOptions((storage or {}).get("options"), Roots([root] if root else []))


def _rows(file: InputFile, options: StorageOptions) -> Iterator[list[dict[str, Any]]]:
    for table, refused in tables_of(Piece(file), options):
        if refused:
            raise ContentError(f"row {refused[0].number}: {refused[0].reason}")
        yield plain_values(table)


def _named(url: str, parts: Iterable[Any], options: StorageOptions) -> Iterator[Any]:
    try:
        yield from parts
    except Exception as error:
        # Packages of object stores have exceptions of their own.
        if local_path(url) is not None and not isinstance(error, OSError | pa.ArrowException):
            raise
        raise _unreadable(url, options.without_secrets(str(error))) from error


def _json_records(url: str, options: StorageOptions) -> Iterator[dict[str, Any]]:
    number = 0
    for block in _named(url, bare_lines(url, options=options), options):
        for line in block.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
            number += 1
            if line.strip():
                yield _record(line, url, number)
        number -= block.endswith(b"\n")


def _record(line: bytes, url: str, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise _record_error(Reject(url, number, f"not JSON: {error}")) from error
    if not isinstance(record, dict):
        raise _record_error(Reject(url, number, "not a JSON object"))
    return record


def _record_error(reject: Reject) -> RecordError:
    return RecordError(reject.reason, where=Where(file=shown(reject.file), line=reject.line))


def _unreadable(url: str, reason: str) -> MessageError:
    text = " ".join(reason.split())
    return MessageError(f"the file cannot be read: {text}", where=Where(file=shown(url)))
