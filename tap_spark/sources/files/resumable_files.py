"""Slices of growing files: new lines since the bookmark, with a bookmark after each slice."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shared.errors import SourceError, Where
from shared.spark.spark_errors import plain_path
from shared.storage.files import open_random
from tap_spark.sources.files.file_positions import (
    FORGET_DAYS,
    FileChange,
    FileKind,
    FilePosition,
    FileRange,
    IsWhole,
    complete_end,
    cut_at_line,
    fingerprint,
    kept_positions,
    line_ends,
    plan_range,
    refreshed,
    waves,
)
from tap_spark.sources.files.line_reader import (
    LINES_SCHEMA,
    FilePart,
    LineRange,
    LineRules,
    cut_ranges,
    has_line,
    read_range,
)
from tap_spark.sources.files.paths import ListedFile
from tap_spark.sources.frame_helpers import col, frame_of_parts
from tap_spark.state.stream_plans import FILES, NOTHING_LISTED, Slice, StreamPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("tap-spark")
WAVE_BYTES = 1024**3
RANGE_BYTES = 16 * 1024**2
INSPECTION_THREADS = 16
"""Files that are inspected at the same time."""
WAITING, LOW = "waiting_lines", "replication_key_value"
"""The files with a line that waits, and above which key it counts, in bookmarks of a key."""
_AGAIN = "stream '%s': file '%s' was {} since the last run: reading it again as a whole"
_WARNINGS = {
    FileChange.TRUNCATED: _AGAIN.format("truncated"),
    FileChange.REWRITTEN: _AGAIN.format("rewritten"),
    FileChange.UNFINISHED: "stream '%s': the last line of file '%s' was read before it was "
    "finished: reading it again",
    FileChange.GROWN: "stream '%s': file '%s' has grown: reading it again as a whole, as its "
    "format cannot be resumed inside a file",
}


def read_positions(plan: StreamPlan) -> dict[str, FilePosition]:
    """Read the file positions from the plan's bookmark.

    Raises:
        SourceError: The state is invalid.
    """
    try:
        files = plan.bookmark.get(FILES) or {}
        return {url: FilePosition.from_json(position) for url, position in files.items()}
    except (ValueError, AttributeError) as error:
        raise SourceError(
            f"the state's file positions are invalid: {error}",
            where=Where(stream=plan.tap_stream_id),
            hint="remove the stream's bookmark to read its files from the start",
        ) from error


@dataclass(frozen=True)
class NewData:
    """What is new in the files of a stream.

    Attributes:
        file_ranges: What to read.
        positions: The position of each file so far.
        rules: How lines are split; None to read files as a whole.
    """

    file_ranges: Sequence[FileRange]
    positions: Mapping[str, FilePosition]
    rules: LineRules | None = None

    def bookmark(self, plan: StreamPlan) -> dict[str, Any] | None:
        """Return the bookmark before anything is read; None if it has not changed."""
        return None if self.positions == read_positions(plan) else _bookmark(plan, self.positions)

    def last_bookmark(self, plan: StreamPlan) -> dict[str, Any]:
        """Return the bookmark after everything that is new has been read."""
        parts = [(new, new.start, new.end) for new in self.file_ranges]
        return _bookmark(plan, self.positions_after(parts, self.positions))

    def positions_after(
        self,
        parts: Sequence[tuple[FileRange, int, int]],
        positions: Mapping[str, FilePosition],
    ) -> dict[str, FilePosition]:
        """Return positions as they are once parts of ranges have been read."""
        after = dict(positions)
        for file_range, start, end in parts:
            file, old = file_range.file, positions.get(file_range.file.url)
            before = file_range.lines if start == file_range.start or old is None else old.lines
            ends = None if self.rules is None else line_ends(file.url, start, end)
            after[file.url] = FilePosition(
                offset=end,
                size=file.size,
                mtime=file.mtime,
                fingerprint=fingerprint(file.url, end),
                lines=None if before is None or ends is None else before + ends,
            )
        return after


def new_bytes(plan: StreamPlan, files: Sequence[ListedFile]) -> int:
    """Return how many bytes were added to files, without a look into them."""
    positions = read_positions(plan)
    offsets = {url: position.offset for url, position in positions.items()}
    return sum(max(0, file.size - offsets.get(file.url, 0)) for file in files)


def new_urls(plan: StreamPlan, files: Sequence[ListedFile]) -> list[str]:
    """Return the files that hold bytes and are new or have changed, without a look into them."""
    positions = read_positions(plan)
    return [f.url for f in files if f.size and not _is_unchanged(f, positions.get(f.url))]


def new_lines(
    plan: StreamPlan, files: Sequence[ListedFile], rules: LineRules, is_whole: IsWhole
) -> NewData:
    """Find the lines that no earlier run has read."""
    positions = read_positions(plan)
    file_ranges: list[FileRange] = []
    waiting: list[str] = []
    stuck: list[str] = []
    for file_range in _changed(plan, files, positions):
        url, start = file_range.file.url, file_range.start
        # A last line without line end may still be being written: it waits for the next run.
        end = complete_end(url, start, file_range.end, is_whole)
        if end < file_range.end:
            (stuck if _is_unchanged(file_range.file, positions.get(url)) else waiting).append(url)
        if not start and rules.header and not has_line(url, end, rules.comment):
            end = 0
        if end > start:
            file_ranges.append(replace(file_range, end=end))
        elif end:
            positions[url] = refreshed(file_range.file, positions[url])
        else:
            positions.pop(url, None)
    log_waiting(plan, waiting)
    warn_stuck(plan, stuck)
    return NewData(file_ranges, positions, rules)


def new_files(
    plan: StreamPlan, files: Sequence[ListedFile], ends: Mapping[str, int] = MappingProxyType({})
) -> NewData:
    """Find the files that are new or have changed.

    Those of `ends` have a last line that waits, before which they count as ended: what a position
    covers has been sent.
    """
    positions = read_positions(plan)
    ended = [replace(file, size=ends.get(file.url, file.size)) for file in files]
    stuck = [f.url for f in ended if f.url in ends and _is_unchanged(f, positions.get(f.url))]
    log_waiting(plan, [url for url in ends if url not in stuck])
    warn_stuck(plan, stuck)
    file_ranges = _changed(plan, ended, positions, lines=False)
    for file_range in file_ranges:
        if not file_range.end:
            positions.pop(file_range.file.url, None)
    return NewData([file_range for file_range in file_ranges if file_range.end], positions)


def new_slices(
    plan: StreamPlan, new: NewData, frame_of: Callable[[Sequence[FilePart]], DataFrame]
) -> Iterator[Slice]:
    """Yield what is new in files: parts that begin and end with lines, or whole files."""
    positions = new.positions
    cut = cut_at_line if new.rules is not None else lambda _url, _at, limit: limit
    # A wave is a slice with a bookmark of its own, so that an interrupted run resumes after it.
    for wave in waves(new.file_ranges, WAVE_BYTES, cut):
        positions = new.positions_after(wave, positions)
        parts = [(file_range.file.url, start, end) for file_range, start, end in wave]
        frame = frame_of(parts).select(*map(col, plan.columns))
        yield Slice(frame, bookmark=_bookmark(plan, positions))


def warn_stuck(plan: StreamPlan, urls: Sequence[str]) -> None:
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


def _is_unchanged(file: ListedFile, position: FilePosition | None) -> bool:
    return position is not None and (position.size, position.mtime) == (file.size, file.mtime)


def _changed(
    plan: StreamPlan,
    files: Sequence[ListedFile],
    positions: dict[str, FilePosition],
    *,
    lines: bool = True,
) -> list[FileRange]:
    """Find the ranges to read; warn of files that start over, renew other positions."""
    _forget_positions(plan, files, positions)
    file_ranges = []
    for file in files:
        position = positions.get(file.url)
        file_range = plan_range(file, position, lines=lines)
        if file_range is not None:
            file_ranges.append(file_range)
        elif position is not None:
            positions[file.url] = refreshed(file, position)
    for file_range in file_ranges:
        text = _WARNINGS.get(file_range.change)
        if text and not (lines and file_range.change is FileChange.GROWN):
            log.warning(text, plan.stream, plain_path(file_range.file.url))
    return file_ranges


def _forget_positions(
    plan: StreamPlan, files: Sequence[ListedFile], positions: dict[str, FilePosition]
) -> None:
    """Drop the positions of files that have not existed for long."""
    listed = {file.url for file in files}
    gone = len(positions.keys() - listed)
    kept = kept_positions(positions, listed, datetime.now(timezone.utc).date())
    if gone and not listed:
        log.warning(NOTHING_LISTED, plan.stream, gone)
    elif gone:
        log.info(
            "stream '%s': %d file(s) of the bookmark no longer exist; dropped the positions of "
            "%d not listed for %d days",
            plan.stream,
            gone,
            len(positions) - len(kept),
            FORGET_DAYS,
        )
    positions.clear()
    positions.update(kept)


def waiting_ends(urls: Sequence[str], rules: LineRules, is_whole: IsWhole) -> dict[str, int]:
    """Return the files whose last line has no line end yet, and the end of the lines before.

    Raises:
        OSError: A file cannot be read.
    """

    def end_of(url: str) -> tuple[int, int]:
        with open_random(url) as file:
            size = int(file.size())
        end = complete_end(url, 0, size, is_whole)
        if rules.header and end < size and not has_line(url, end, rules.comment):
            end = 0
        return end, size

    with ThreadPoolExecutor(INSPECTION_THREADS) as pool:
        change = zip(urls, pool.map(end_of, urls), strict=True)
        return {url: end for url, (end, size) in change if end < size}


def log_waiting(plan: StreamPlan, urls: Sequence[str]) -> None:
    """Log which files have a last line without line end."""
    if urls:
        log.info(
            "stream '%s': the last line of %d file(s) has no line end yet and is read once it has; "
            "first '%s' (set 'read_unterminated_line' to read such lines at once)",
            plan.stream,
            len(urls),
            plain_path(urls[0]),
        )


def late_lines(
    plan: StreamPlan, files: Sequence[ListedFile], ends: Mapping[str, int], is_whole: IsWhole
) -> tuple[dict[Any, list[FilePart]], dict[str, Any]]:
    """Return lines that waited in the last run, by the key above which they count, and what waits.

    Keys of such lines may be below the bookmark, which is of the rows that were sent.
    """
    # 1. Lines that go on waiting, as their file has not changed.
    waited = plan.bookmark.get(WAITING) or {}
    positions = read_positions(replace(plan, bookmark={FILES: waited}))
    late: dict[Any, list[FilePart]] = {}
    same = {file.url for file in files if _is_unchanged(file, positions.get(file.url))}
    waiting = {url: waited[url] for url in same if positions[url].offset == ends.get(url)}
    # 2. Of the other files, lines that have got their end since then, and those that wait now.
    files = [file for file in files if file.url not in waiting]
    urls = [file.url for file in files if file.url in ends]
    with ThreadPoolExecutor(INSPECTION_THREADS) as pool:
        prints = dict(
            zip(urls, pool.map(fingerprint, urls, map(ends.__getitem__, urls)), strict=True)
        )
    for file in files:
        url, low, end = file.url, plan.start_value, ends.get(file.url)
        file_range = plan_range(file, positions[url]) if url in positions else None
        if file_range is not None:
            start, before = file_range.start, waited[url].get(LOW)
            stop = complete_end(url, start, file.size, is_whole) if end is None else end
            low = low if stop > start else before
            if stop > start and plan.start_value is not None:
                late.setdefault(before, []).append((url, start, stop))
                text = _WARNINGS.get(file_range.change)
                if text and file_range.change is not FileChange.GROWN:
                    log.warning(text, plan.stream, plain_path(url))
        if end is not None:
            position = FilePosition(end, file.size, file.mtime, prints[url])
            waiting[url] = {**position.to_json(), LOW: low}
    return late, {WAITING: waiting}


def _bookmark(plan: StreamPlan, positions: Mapping[str, FilePosition]) -> dict[str, Any]:
    entries = {url: position.to_json() for url, position in positions.items()}
    kept: dict[str, Any] = json.loads(json.dumps(dict(plan.bookmark)))
    return {**kept, FILES: entries}


def lines_frame(
    spark: SparkSession,
    parts: Sequence[tuple[str, int, int]],
    rules: LineRules,
    change: Callable[[pa.Array], pa.Array] | None,
    kinds: Mapping[str, FileKind] = MappingProxyType({}),
) -> DataFrame:
    """Return a frame of the lines (`value` binary, `file` index into `parts`) of parts of files.

    `change` changes the lines on executors; `kinds` say how to read files that are not plain.
    """

    def read(ranges: Sequence[LineRange]) -> Iterator[pa.RecordBatch]:
        for lines in chain.from_iterable(map(read_range, ranges)):
            values = lines.column(0)
            yield lines if change is None else lines.set_column(0, "value", change(values))

    return frame_of_parts(spark, line_tasks(parts, rules, kinds), read, LINES_SCHEMA)


def line_tasks(
    parts: Sequence[FilePart],
    rules: LineRules,
    kinds: Mapping[str, FileKind],
    *,
    whole: bool = False,
) -> list[list[LineRange]]:
    """Return the ranges of parts of files, by the task that reads them.

    Each part is one range if `whole`.
    """
    ranges = [
        line_range
        for number, part in enumerate(parts)
        for line_range in part_ranges(
            number, part, rules, kinds.get(part[0], FileKind()), whole=whole
        )
    ]
    return pack(ranges, RANGE_BYTES)


def part_ranges(
    number: int, part: FilePart, rules: LineRules, kind: FileKind, *, whole: bool = False
) -> list[LineRange]:
    """Return the ranges of a part of a file, which are read on their own."""
    url, start, end = part
    rules = replace(rules, encoding=kind.encoding or rules.encoding)
    is_stream = whole or kind.is_compressed or not rules.in_parts
    size = max(1, end - start) if is_stream else RANGE_BYTES
    return cut_ranges(url, number, start, end, range_bytes=size, rules=rules, is_stream=is_stream)


def pack(ranges: Sequence[LineRange], task_bytes: int) -> list[list[LineRange]]:
    """Combine small ranges, so that many small files need fewer tasks."""
    tasks: list[list[LineRange]] = []
    room = 0
    for line_range in ranges:
        size = line_range.stop - line_range.start
        if size > room or not tasks:
            tasks.append([])
            room = task_bytes
        tasks[-1].append(line_range)
        room -= size
    return tasks
