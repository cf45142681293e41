"""About how many rows streams have, by what is quick to read: statistics, footers, first lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from shared.errors import SingerSparkError
from shared.storage.files import codec_of, open_random, unpacked
from tap_spark.planning.catalog import metadata_of, stream_id
from tap_spark.sources.files.file_source import FileSource
from tap_spark.sources.files.paths import ListedFile, list_files
from tap_spark.sources.source import TellingSource, source_for

if TYPE_CHECKING:
    from tap_spark.config import TapConfig
    from tap_spark.stream_config import StreamConfig

_SAMPLE, _UNPACKED_SAMPLE = 1 << 20, 32 << 20
_BY_LINES = ("csv", "json", "text", "fixed_width")


def estimated_rows(config: TapConfig, catalog: Mapping[str, Any]) -> dict[str, str]:
    """Return how many rows streams have, for people; with `~` if it is an estimate.

    Args:
        config: The settings.
        catalog: A catalog that discovery has found. Streams of which nothing is known are left out.
    """
    by_name = {stream.name: stream for stream in config.streams}
    found: dict[str, str] = {}
    for entry in catalog["streams"]:
        name = str(stream_id(entry))
        rows = metadata_of(entry).get((), {}).get("row-count")
        is_exact = False
        if rows is None and name in by_name:
            with suppress(SingerSparkError, OSError, ValueError):
                rows, is_exact = _rows_of(by_name[name])
        if rows is not None:
            found[name] = f"{'' if is_exact else '~'}{rows:,}"
    return found


def _rows_of(stream: StreamConfig) -> tuple[int | None, bool]:
    """Return the rows of a stream, and whether they are exact."""
    if isinstance(rows := stream.own.get("row_count"), int):
        return rows, True
    source = source_for(stream)
    if isinstance(source, TellingSource):
        return source.told_rows(), True
    is_document = "records_path" in stream.own or _is_on(stream, "multiline")
    if not isinstance(source, FileSource) or stream.format not in _BY_LINES or is_document:
        return None, False
    files = [file for file in list_files(tuple(source.paths)) if file.size]
    has_header = stream.format == "csv" and _is_on(stream, "header", "true")
    return _rows_by_lines(files, len(files) if has_header else 0), False


def _is_on(stream: StreamConfig, option: str, default: str = "false") -> bool:
    options = {name.lower(): value for name, value in stream.options.items()}
    return options.get(option, default).lower() == "true"


def _rows_by_lines(files: Sequence[ListedFile], headers: int) -> int | None:
    """Return the rows of files, if all are like the beginning of the greatest one."""
    if not files:
        return 0
    largest = max(files, key=lambda file: file.size)
    raw = open_random(largest.url)
    codec = codec_of(largest.url)
    most = _SAMPLE if codec is None else _UNPACKED_SAMPLE
    with raw if codec is None else unpacked(raw, codec) as content:
        head: bytes = content.read(most)
        # What unpacks reads ahead.
        read = raw.tell() if len(head) == most else largest.size
    if head.lstrip()[:1] == b"[":
        return None
    lines = head.count(b"\n") + (len(head) < most and not head.endswith(b"\n"))
    return max(0, round(lines * sum(file.size for file in files) / read) - headers)
