"""The input lines of rows, looked up again if a row fails."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.file_formats import FORMATS
from shared.formats.json_text import line_count
from shared.formats.typed_rows import RowReader
from shared.storage.access import StorageOptions
from target_spark.convert.read_lines import blocks_of, line_of, lines_before
from target_spark.convert.read_plan import Piece, ReadPlan, split_origin
from target_spark.convert.read_tables import tables_of
from target_spark.convert.task_reports import Rejects
from target_spark.core.load_plans import Reject
from target_spark.destinations.destination import ROW_ORIGIN


class Originals:
    """Turns the origins of failed rows into rejected records.

    Files are read again only if the text of a record is needed, and only once if the origins come
    in order.
    """

    def __init__(self, read: ReadPlan) -> None:
        self._read = read
        self._pieces = {piece.number: piece for task in read.tasks for piece in task}
        self._before: dict[int, int] = {}
        self._texts: _Texts | None = None

    def reject(self, origin: int, reason: str, rejects: Rejects) -> None:
        """Add a record to the rejects, with its text if texts are kept."""
        number, line = split_origin(origin)
        text = b"" if rejects.folder is None else self._text(self._pieces[number], line)
        rejects.add(self.place(origin, reason), text)

    def place(self, origin: int, reason: str) -> Reject:
        """Return a rejected record without its text, see `reject`."""
        number, line = split_origin(origin)
        piece = self._pieces[number]
        return Reject(piece.file.url, self._line(piece, line), reason, self._read.output)

    def reject_all(self, origins: pa.Array, errors: pa.Array, rejects: Rejects) -> None:
        """Add the records that have an error to the rejects, see `reject`."""
        failed = origins.filter(errors.is_valid()).to_pylist()
        for origin, reason in zip(failed, errors.drop_null().to_pylist(), strict=True):
            self.reject(origin, reason, rejects)

    def _line(self, piece: Piece, line: int) -> int:
        if FORMATS[piece.file.encoding.format].rows != "lines":
            return line + 1
        if piece.number not in self._before:
            self._before[piece.number] = lines_before(piece, self._read.options)
        return line_of(piece.file, self._before[piece.number] + line + 1)

    def _text(self, piece: Piece, line: int) -> bytes:
        existing = self._texts
        if existing is None or existing.piece != piece or line < existing.first:
            lines = FORMATS[piece.file.encoding.format].rows == "lines"
            parts = _lines(piece, self._read.options) if lines else _rows(piece, self._read)
            existing = self._texts = _Texts(piece, parts)
        return existing.text(line)


_Part = tuple[int, int, Callable[[int], bytes]]
"""First line, number of lines, and a function that returns the text of one of them."""


@dataclass(eq=False)
class _Texts:
    """Texts of a piece, read forwards."""

    piece: Piece
    parts: Iterator[_Part]
    first: int = 0
    end: int = 0
    at: Callable[[int], bytes] = lambda _: b""

    def text(self, line: int) -> bytes:
        while line >= self.end:
            part = next(self.parts, None)
            if part is None:
                return b""
            self.first, count, self.at = part
            self.end = self.first + count
        return self.at(line)


def _lines(piece: Piece, options: StorageOptions | None) -> Iterator[_Part]:
    for block, before in blocks_of(piece, options):
        texts = block.split(b"\n")

        def text(line: int, first: int = before, texts: list[bytes] = texts) -> bytes:
            return texts[line - first]

        yield before, line_count(block), text


def _rows(piece: Piece, read: ReadPlan) -> Iterator[_Part]:
    before, texts = piece.rows_before, FORMATS[piece.file.encoding.format].rows == "texts"
    reader = RowReader(read.schema, strict=read.strict, texts=texts)
    for table, refused in tables_of(piece, read.options):
        numbers = [row.number - 1 for row in refused]

        def text(
            line: int, table: pa.Table = table, first: int = before, numbers: list[int] = numbers
        ) -> bytes:
            return reader.row_at(table, line - first - bisect_left(numbers, line))

        yield before, table.num_rows + len(refused), text
        before += table.num_rows + len(refused)


def accepted(read: ReadPlan, tables: Iterable[pa.Table], rejects: Rejects) -> Iterator[pa.Table]:
    """Yield the rows of a task without those of records that the store refuses."""
    originals, refused = Originals(read), pa.array(sorted(read.refused), pa.int64())
    for table in tables:
        origins = table.column(ROW_ORIGIN)
        is_refused = pc.is_in(origins, refused)
        for origin in origins.filter(is_refused).to_pylist():
            originals.reject(origin, read.refused[origin], rejects)
        yield table.filter(pc.invert(is_refused))
