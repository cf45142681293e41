"""Files of rejected records on their way from the executors to the dead letters.

One JSON object a line: `file`, `line`, `reason`, and the record's text as received: `original`, or
`original_base64` if it is not Unicode text.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import orjson

from shared.formats.file_formats import read_lines
from shared.storage.files import StorageOptions
from target_spark.core.load_plans import Reject


def reject_line(reject: Reject, original: bytes) -> bytes:
    """Return a rejected record as one line.

    Args:
        reject: The record and the reason.
        original: A line of standard input or of a batch file, or a row of it as a JSON object.
    """
    place = {"file": reject.file, "line": reject.line, "reason": reject.reason}
    text = original.rstrip(b"\r\n")
    try:
        return orjson.dumps({**place, "original": text.decode()}) + b"\n"
    except (UnicodeDecodeError, orjson.JSONEncodeError):
        coded = base64.b64encode(text).decode()
        return orjson.dumps({**place, "original_base64": coded}) + b"\n"


def read_rejects(url: str, options: StorageOptions | None = None) -> Iterator[tuple[Reject, bytes]]:
    """Yield what `reject_line` wrote into a file, in bounded memory."""
    for block in read_lines(url, options=options):
        for line in block.splitlines():
            found = orjson.loads(line)
            text = found.get("original")
            original = base64.b64decode(found["original_base64"]) if text is None else text.encode()
            yield Reject(found["file"], found["line"], found["reason"]), original
