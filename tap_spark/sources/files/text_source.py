"""The base of formats of text: every file is read as lines, by the same rules for each method."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from shared.singer.platform import arrow_in_task
from tap_spark.sources.files import paths
from tap_spark.sources.files.file_source import FileSource
from tap_spark.sources.files.line_reader import (
    LINES_SCHEMA,
    LineRange,
    LineRules,
    decoded,
    first_record,
    without_header,
)
from tap_spark.sources.files.paths import FileKind
from tap_spark.sources.files.resumable_files import lines_frame, part_ranges
from tap_spark.sources.reader_options import FILES
from tap_spark.sources.source_failures import row_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

HEAD_LINES = 64 * 1024
OTHER_COLUMNS = "read files with other columns as a stream of their own"


class TextFileSource(FileSource):
    """Files of text.

    Attributes:
        spark_header: The header of files that only Spark can open.
    """

    spark_header: bytes = b""

    @abstractmethod
    def text_rules(self) -> LineRules:
        """Return how the text of a whole file is split."""

    def line_rules(self) -> LineRules | None:
        """See `FileSource.line_rules`."""
        rules = self.text_rules()
        return rules if rules.in_parts else None

    def rows(self, spark: SparkSession, urls: list[str], struct: StructType) -> DataFrame:
        """See `FileSource.rows`."""
        files = self.listed(spark, urls)
        if files is None:
            lines, names = self.lines_by_spark(spark, urls, header=self.text_rules().header)
            return self.rows_of_lines(lines, struct, names)
        return self._rows_of_parts(spark, [(file.url, 0, file.size) for file in files], struct)

    def finished_rows(
        self,
        spark: SparkSession,
        urls: list[str],
        struct: StructType,
        report: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> DataFrame:
        """See `FileSource.finished_rows`."""
        files = self.listed(spark, urls) if self._incremental else None
        if files is None:
            return self.rows(spark, urls, struct)
        ends = self.waiting([file.url for file in files])
        if ends:
            report(list(ends))
        parts = [(file.url, 0, ends.get(file.url, file.size)) for file in files]
        return self._rows_of_parts(spark, parts, struct)

    def is_plain(self, url: str) -> bool:
        """See `FileSource.is_plain`."""
        return self.kind_of(url) == FileKind()

    def first_record(self, url: str, size: int) -> bytes | None:
        """Return the first record of a file that is neither blank nor a comment, as UTF-8."""
        rules = self.text_rules()
        for limit in sorted({min(HEAD_LINES, size), size}):
            (whole,) = part_ranges(0, (url, 0, size), rules, self.kind_of(url))[:1]
            head = LineRange(
                url, 0, 0, limit, size, aligned=True, comment=rules.comment,
                rules=whole.rules, is_stream=whole.is_stream,
            )  # fmt: skip
            record = first_record(head)
            if record is not None:
                return record
        return None

    def check_headers(self, files: Sequence[str]) -> None:
        """Check the first lines of files before they are read together."""

    def _rows_of_parts(
        self, spark: SparkSession, parts: list[tuple[str, int, int]], struct: StructType
    ) -> DataFrame:
        parts = [part for part in parts if part[2]]
        urls = [url for url, _, _ in parts]
        kinds = self.kinds(urls)
        self.check_headers(urls)
        lines = lines_frame(spark, parts, self.text_rules(), self.change_for(struct), kinds)
        return self.rows_of_lines(lines, struct, urls)

    def lines_by_spark(
        self, spark: SparkSession, urls: Iterable[str], *, header: bool
    ) -> tuple[DataFrame, list[str]]:
        """Return the lines of files that only Spark can open, and the files."""
        names = {option.name.lower() for option in FILES} | {"linesep"}
        options = {k: v for k, v in self.options().items() if k.lower() in names}
        frame = spark.read.options(**options).text(list(urls))
        files = [paths.from_spark(url) for url in frame.inputFiles()]
        rules = replace(self.text_rules(), header=header)
        if not rules.in_parts and not rules.line_end:
            raise self.error(
                "values with line ends, and text in UTF-16 or UTF-32, are read by Python, which "
                "cannot open the files",
                "install the fsspec package of their storage, with credentials in the environment",
                self.shown_path(),
            )
        # mapInArrow takes names for expressions, dots and all.
        selected = frame.select(
            F.col("value").cast("binary").alias("value"),
            F.col("_metadata.file_path").alias("path"),
            F.col("_metadata.file_block_start").cast("long").alias("start"),
        )
        numbers = {file: number for number, file in enumerate(files)}
        lines = selected.mapInArrow(_numbered(numbers, rules, self.spark_header), LINES_SCHEMA)
        return lines, files


def _check_header(actual: bytes, expected: bytes, file: str) -> None:
    if actual != expected:
        header, other = (text.decode(errors="replace") for text in (actual, expected))
        problem = f"the header {header} differs from that of the other files: {other}"
        raise RuntimeError(row_failure(problem=problem, file=file, hint=OTHER_COLUMNS))


def _numbered(
    numbers: Mapping[str, int], rules: LineRules, expected: bytes
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Return a function for `mapInArrow`: lines of Spark with their files in, without headers out.

    Spark reads each part of a file in its order. A header must be the expected one, if any.
    """

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow_in_task()
        last, header = ("", -1), False
        for batch in batches:
            start = 0
            while start < len(batch):
                place = (batch.column(1)[start].as_py(), batch.column(2)[start].as_py())
                rest = batch.slice(start)
                same = pc.and_(
                    pc.equal(rest.column(1), place[0]), pc.equal(rest.column(2), place[1])
                )
                count = pc.index(same, False).as_py()
                count = len(rest) if count < 0 else count
                header = rules.header and not place[1] if place != last else header
                last = place
                lines = decoded(rest.column(0).slice(0, count), place[0], rules)
                kept, still = without_header(lines, rules.comment, header=header)
                if header and not still and expected:
                    first = lines[len(lines) - len(kept) - 1].as_py()
                    _check_header(first, expected, place[0])
                header = still
                number = pa.scalar(numbers[paths.from_spark(place[0])], pa.int32())
                yield pa.RecordBatch.from_arrays(
                    [kept, pa.repeat(number, len(kept))], ["value", "file"]
                )
                start += count

    return read
