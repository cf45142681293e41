"""A check that JSON documents hold one value each, as Spark silently reads only the first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from shared.storage.files import open_input
from tap_spark.sources.source_failures import row_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BLOCK = 4 * 1024 * 1024
LONGEST_LINE = 64 * 1024 * 1024
MAX_TASKS = 32
HINT = "write one object per line without 'multiLine', or put the values into one array"
# Within one JSON value, no other value can begin right after the end of an array or object.
_NEXT = re.compile(rb"[}\]]\s*[{\[]")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def checked_documents(frame: DataFrame, urls: Sequence[str]) -> DataFrame:
    """Return the frame of some documents; it fails if one of them holds several values.

    Args:
        frame: What Spark reads from the documents.
        urls: The documents.
    """
    if not urls:
        return frame
    ids = frame.sparkSession.range(0, len(urls), 1, min(len(urls), MAX_TASKS))
    nothing = ids.mapInArrow(_checker(list(urls)), "nothing int")
    columns = (F.lit(None).cast(f.dataType).alias(f.name) for f in frame.schema.fields)
    return frame.unionAll(nothing.select(*columns))


def several_values(blocks: Iterable[bytes]) -> bool:
    """Return whether a text holds an array or object after its first one.

    Args:
        blocks: The text, block by block. Lines of more than `LONGEST_LINE` bytes are skipped.
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


def _checker(urls: list[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if several_values(_blocks(urls[number])):
                    problem = "the file holds several JSON values, of which only one would be read"
                    raise RuntimeError(row_failure(problem=problem, file=urls[number], hint=HINT))
        yield pa.RecordBatch.from_pydict({"nothing": pa.array([], pa.int32())})

    return check


def _blocks(url: str) -> Iterator[bytes]:
    with open_input(url) as file:
        block = bytes(file.read(BLOCK))
        if not block.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):
            return
        while block:
            yield block
            block = bytes(file.read(BLOCK))
