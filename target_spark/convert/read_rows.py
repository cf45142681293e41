"""Reading of a batch's files on executors: rows of the stream, and rejected rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pyarrow as pa

from shared.formats.file_formats import FORMATS
from shared.storage.access import StorageOptions, failures, is_trouble, remote
from shared.storage.urls import local_path
from target_spark.convert.read_plan import Piece, ReadPlan
from target_spark.convert.task_reports import Rejects

SMALL_BYTES = 16 << 20
"""Size up to which a task fetches a remote file at once."""


class UnreadableInputError(Exception):
    """A file to load cannot be opened or has the wrong format; has its URL and the reason.

    If its storage does not answer, or rejects the request, the errno comes third.
    """


def read_task(read: ReadPlan, pieces: Iterable[Piece], rejects: Rejects) -> Iterator[pa.Table]:
    """Yield the completed rows of some pieces, in bounded tables with the plan's columns.

    Raises:
        UnreadableInputError: A file is missing, truncated or has another format, or its storage
            fails.
    """
    tables = (table for piece in pieces for table in _read(read, piece, rejects))
    if not read.refused:
        return tables
    from target_spark.convert.rejected_originals import accepted  # noqa: PLC0415

    return accepted(read, tables, rejects)


def _read(read: ReadPlan, piece: Piece, rejects: Rejects) -> Iterator[pa.Table]:
    """Yield the tables of one file; wrap failures to read it, not those of the consumer."""
    url, options = piece.url, read.options
    is_near = local_path(url) is not None
    try:
        with nullcontext(piece) if is_near else _fetched(piece, options) as near:
            if FORMATS[piece.file.encoding.format].rows == "lines":
                from target_spark.convert.read_lines import rows_of_lines  # noqa: PLC0415

                yield from rows_of_lines(read, near, rejects)
            else:
                from target_spark.convert.read_tables import rows_of_tables  # noqa: PLC0415

                yield from rows_of_tables(read, near, rejects)
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if not is_near and isinstance(error, OSError) and is_trouble(error):
            number = error.errno or 0
            raise UnreadableInputError(url, error.strerror or "", number) from error
        raise UnreadableInputError(url, _reason(error, options)) from error
    except Exception as error:
        if is_near:
            raise
        # Packages of object stores have exceptions of their own.
        raise UnreadableInputError(url, _reason(error, options)) from error


@contextmanager
def _fetched(piece: Piece, options: StorageOptions) -> Iterator[Piece]:
    """Copy a small remote file to the local disk: its parts would take a request each."""
    size = piece.file.size or 0
    if piece.length is not None or not 0 < size <= SMALL_BYTES:
        yield piece
        return
    with tempfile.NamedTemporaryFile(prefix="singer-spark-") as copy:
        filesystem, inside = remote(piece.url, options)
        with failures(piece.url, options):
            # With a start, s3fs does not ask for the size first.
            copy.write(filesystem.cat_file(inside, start=0))
        copy.flush()
        yield replace(piece, copy=copy.name)


def _reason(error: BaseException, options: StorageOptions) -> str:
    message = (error.strerror if isinstance(error, OSError) else None) or str(error)
    text = " ".join(message.split()) or type(error).__name__
    return options.without_secrets(text)
