"""Slices of files that grow: what is new since the bookmark, with a bookmark after each slice."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Protocol

from shared.errors import SourceError, Where
from shared.spark_errors import plain_path
from tap_spark.plans import Slice, StreamPlan
from tap_spark.sources.frames import col
from tap_spark.sources.line_reader import (
    LINES_SCHEMA,
    LineRange,
    cut_ranges,
    has_line,
    reader,
)
from tap_spark.sources.looks import FileLook
from tap_spark.sources.paths import FileNow
from tap_spark.sources.positions import (
    FORGET_DAYS,
    FileMark,
    Found,
    Reading,
    complete_end,
    decide,
    kept_marks,
    renewed,
    waves,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("tap-spark")
WAVE_BYTES = 1024**3
PIECE_BYTES = 16 * 1024**2
LOOKS = 16
"""Files that are inspected at the same time."""
FILES = "files"


class GrowingFiles(Protocol):
    """What a format does to read files that grow."""

    def frame_of_files(self, spark: SparkSession, plan: StreamPlan, urls: list[str]) -> DataFrame:
        """Read whole files."""
        ...

    def frame_of_lines(self, plan: StreamPlan, lines: DataFrame, urls: list[str]) -> DataFrame:
        """Read a frame of lines (`value` binary, `file` index into `urls`)."""
        ...

    def line_change(
        self, spark: SparkSession, plan: StreamPlan
    ) -> Callable[[pa.Array], pa.Array] | None:
        """Return what changes lines, on executors, before `frame_of_lines`; None for nothing."""
        ...

    def no_rows(self, spark: SparkSession, plan: StreamPlan) -> DataFrame:
        """Return a frame without rows, to carry a bookmark."""
        ...

    def check_file(self, url: str) -> None:
        """Check the start of a file before it is read, from its start or from later on."""
        ...

    def whole_line(self, url: str, start: int, end: int) -> bool:
        """Return whether a last line without line end is complete, and may be read."""
        ...


@dataclass(frozen=True)
class LineRules:
    """How a format's lines are split.

    Attributes:
        header: Whether each file starts with a header line.
        comment: Prefix of lines to skip.
    """

    header: bool = False
    comment: bytes = b""


def read_marks(plan: StreamPlan) -> dict[str, FileMark]:
    """Read the files' marks from the plan's bookmark.

    Raises:
        SourceError: The state is invalid.
    """
    files = plan.bookmark.get(FILES) or {}
    try:
        return {url: FileMark.from_json(mark) for url, mark in files.items()}
    except (ValueError, AttributeError) as error:
        raise SourceError(
            f"the state's file positions are invalid: {error}",
            where=Where(stream=plan.tap_stream_id),
            hint="remove the stream's bookmark to read its files from the start",
        ) from error


def line_slices(
    source: GrowingFiles,
    spark: SparkSession,
    plan: StreamPlan,
    files: Sequence[FileNow],
    rules: LineRules,
) -> Iterator[Slice]:
    """Read the lines that no earlier run has read."""
    look = FileLook()
    marks = read_marks(plan)
    readings: list[Reading] = []
    waiting: list[str] = []
    stuck: list[str] = []
    for reading in _changed(plan, files, marks, look):
        url, start = reading.file.url, reading.start
        end = complete_end(url, start, reading.end, look, source.whole_line)
        if end < reading.end:
            (stuck if _is_unchanged(reading.file, marks.get(url)) else waiting).append(url)
        if not start and rules.header and not has_line(url, end, rules.comment):
            end = 0
        if end > start:
            source.check_file(url)
            readings.append(replace(reading, end=end))
        elif end:
            marks[url] = renewed(reading.file, marks[url])
        else:
            marks.pop(url, None)
    tell_waiting(plan, waiting)
    tell_stuck(plan, stuck)
    if not readings:
        yield from _marks_only(source, spark, plan, marks)
    for wave in waves(readings, WAVE_BYTES, look.cut):
        urls = [reading.file.url for reading, _, _ in wave]
        for reading, start, end in wave:
            marks[reading.file.url] = _mark(reading, marks.get(reading.file.url), start, end, look)
        parts = [(reading.file.url, start, end) for reading, start, end in wave]
        lines = lines_frame(spark, parts, rules, source.line_change(spark, plan))
        frame = source.frame_of_lines(plan, lines, urls).select(*map(col, plan.columns))
        yield Slice(frame, bookmark=_bookmark(plan, marks))


def file_slices(
    source: GrowingFiles, spark: SparkSession, plan: StreamPlan, files: Sequence[FileNow]
) -> Iterator[Slice]:
    """Read the files that are new or have changed, each as a whole."""
    look = FileLook()
    marks = read_marks(plan)
    readings = _changed(plan, files, marks, look, lines=False)
    for reading in readings:
        if not reading.end:
            marks.pop(reading.file.url, None)
        if reading.found is Found.GROWN:
            log.warning(
                "stream '%s': file '%s' has grown: reading it again as a whole, as its format "
                "cannot be resumed inside a file",
                plan.stream,
                plain_path(reading.file.url),
            )
    readings = [reading for reading in readings if reading.end]
    if not readings:
        yield from _marks_only(source, spark, plan, marks)
    for wave in waves(readings, WAVE_BYTES, lambda _url, _at, limit: limit):
        for reading, _, end in wave:
            digest = look.fingerprint(reading.file.url, end)
            file = reading.file
            marks[file.url] = FileMark(end, file.size, file.mtime, digest)
        urls = [reading.file.url for reading, _, _ in wave]
        frame = source.frame_of_files(spark, plan, urls).select(*map(col, plan.columns))
        yield Slice(frame, bookmark=_bookmark(plan, marks))


def tell_stuck(plan: StreamPlan, urls: Sequence[str]) -> None:
    """Warn of files whose last line may never get a line end."""
    if urls:
        log.warning(
            "stream '%s': the last line of %d file(s) still has no line end, and they have not "
            "changed since the last run; first '%s'; if they are complete, set "
            "'read_unterminated_line'",
            plan.stream,
            len(urls),
            plain_path(urls[0]),
        )


def _is_unchanged(file: FileNow, mark: FileMark | None) -> bool:
    return mark is not None and (mark.size, mark.mtime) == (file.size, file.mtime)


def _marks_only(
    source: GrowingFiles, spark: SparkSession, plan: StreamPlan, marks: Mapping[str, FileMark]
) -> Iterator[Slice]:
    """Yield a slice without rows, to carry the bookmark, if that has changed."""
    if marks != read_marks(plan):
        yield Slice(source.no_rows(spark, plan), bookmark=_bookmark(plan, marks))


def _changed(
    plan: StreamPlan,
    files: Sequence[FileNow],
    marks: dict[str, FileMark],
    look: FileLook,
    *,
    lines: bool = True,
) -> list[Reading]:
    """Find what is to be read; warn of files that are started over, renew marks of the others."""
    _forget(plan, files, marks)
    readings = []
    for file in files:
        mark = marks.get(file.url)
        reading = decide(file, mark, look, lines=lines)
        if reading is not None:
            readings.append(reading)
        elif mark is not None:
            marks[file.url] = renewed(file, mark)
    for reading in readings:
        path = plain_path(reading.file.url)
        if reading.found in (Found.TRUNCATED, Found.REWRITTEN):
            log.warning(
                "stream '%s': file '%s' was %s since the last run: reading it again as a whole",
                plan.stream,
                path,
                reading.found.value,
            )
        elif reading.found is Found.UNFINISHED:
            log.warning(
                "stream '%s': the last line of file '%s' was read before it was finished: reading "
                "it again",
                plan.stream,
                path,
            )
    return readings


def _forget(plan: StreamPlan, files: Sequence[FileNow], marks: dict[str, FileMark]) -> None:
    """Drop the positions of files that have not existed for long."""
    listed = {file.url for file in files}
    gone = len(marks.keys() - listed)
    kept = kept_marks(marks, listed, datetime.now(timezone.utc).date())
    if gone and not listed:
        log.warning("stream '%s': found no files; keeping all %d file positions", plan.stream, gone)
    elif gone:
        log.info(
            "stream '%s': %d file(s) of the bookmark no longer exist; dropped the positions of "
            "%d not listed for %d days",
            plan.stream,
            gone,
            len(marks) - len(kept),
            FORGET_DAYS,
        )
    marks.clear()
    marks.update(kept)


def waiting_ends(source: GrowingFiles, urls: Sequence[str], rules: LineRules) -> dict[str, int]:
    """Return the files whose last line has no line end yet, and the end of the lines before.

    Raises:
        OSError: A file cannot be read.
    """
    look = FileLook()

    def end_of(url: str) -> tuple[int, int]:
        size = look.size(url)
        end = complete_end(url, 0, size, look, source.whole_line)
        if rules.header and end < size and not has_line(url, end, rules.comment):
            end = 0
        return end, size

    with ThreadPoolExecutor(LOOKS) as pool:
        found = zip(urls, pool.map(end_of, urls), strict=True)
        return {url: end for url, (end, size) in found if end < size}


def tell_waiting(plan: StreamPlan, urls: Sequence[str]) -> None:
    """Log which files have a last line without line end."""
    if urls:
        log.info(
            "stream '%s': the last line of %d file(s) has no line end yet and is read once it has; "
            "first '%s' (set 'read_unterminated_line' to read such lines at once)",
            plan.stream,
            len(urls),
            plain_path(urls[0]),
        )


def _mark(reading: Reading, old: FileMark | None, start: int, end: int, look: FileLook) -> FileMark:
    file = reading.file
    before = reading.lines if start == reading.start or old is None else old.lines
    ends = look.line_ends(file.url, start, end)
    return FileMark(
        offset=end,
        size=file.size,
        mtime=file.mtime,
        fingerprint=look.fingerprint(file.url, end),
        lines=None if before is None or ends is None else before + ends,
    )


def _bookmark(plan: StreamPlan, marks: Mapping[str, FileMark]) -> dict[str, Any]:
    entries = {url: mark.to_json() for url, mark in marks.items()}
    kept: dict[str, Any] = json.loads(json.dumps(dict(plan.bookmark)))
    return {**kept, FILES: entries}


def lines_frame(
    spark: SparkSession,
    parts: Sequence[tuple[str, int, int]],
    rules: LineRules,
    change: Callable[[pa.Array], pa.Array] | None,
) -> DataFrame:
    """Return a frame of the lines (`value` binary, `file` index into `parts`) of parts of files.

    Args:
        spark: The session.
        parts: File, start and end; both are line starts or the end of the file.
        rules: How lines are split.
        change: Changes the lines on executors.
    """
    ranges = [
        piece
        for number, (url, start, end) in enumerate(parts)
        for piece in cut_ranges(
            url,
            number,
            start,
            end,
            piece=PIECE_BYTES,
            header=rules.header,
            comment=rules.comment,
        )
    ]
    tasks = pack(ranges, PIECE_BYTES)
    ids = spark.range(0, len(tasks), 1, len(tasks))
    return ids.mapInArrow(reader(tasks, change), LINES_SCHEMA)


def pack(ranges: Sequence[LineRange], task_bytes: int) -> list[list[LineRange]]:
    """Put small ranges together, so that many small files do not make as many tasks."""
    tasks: list[list[LineRange]] = []
    room = 0
    for piece in ranges:
        size = piece.stop - piece.start
        if size > room or not tasks:
            tasks.append([])
            room = task_bytes
        tasks[-1].append(piece)
        room -= size
    return tasks
