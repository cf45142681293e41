"""Failures of Spark while it reads a source, each as one SourceError.

Errors of single rows are raised inside Spark with a marked text, `[tap-spark]...[/tap-spark]`,
which is found again inside the messages of Spark, Py4J and Spark Connect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from shared.errors import SourceError, Where
from shared.spark.spark_errors import MISSING_FILE, SHARED_FOLDER, java_reason, plain_path
from shared.storage import s3a
from shared.transient_failures import may_pass
from tap_spark.sources.jdbc_failures import database_error

BEGIN, END = "[tap-spark]", "[/tap-spark]"
_MARKED = re.compile(re.escape(BEGIN) + r"(.*?)" + re.escape(END), re.DOTALL)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]\s*(.*)")
_FILE = re.compile(r"reading file (\S.*?)\.\s+SQLSTATE|Path does not exist: (\S+?)\.? SQLSTATE")
_VALUE = re.compile(r"The value '(.*?)' of the type \S+ cannot be cast to \"(\w+)", re.DOTALL)
_HEADER = re.compile(
    r"CSV header does not conform.*?\n\s*Header: (.*?)\n\s*Schema: (.*?)\n", re.DOTALL
)
_CSV_FILE = re.compile(r"CSV file: (\S+)")
_COLON = re.compile(r"Relative path in absolute URI: (?:\.(\S+)\.crc|(\S+))")
_TRACEBACK = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'^  File "(.+?)", line (\d+), in .*\n', re.MULTILINE)
# Code of Spark and of the programs, not of users.
_OURS = re.compile(r"[\\/](?:pyspark|tap_spark|shared)[\\/]|^<")
_LIBRARY = re.compile(
    r"[\\/](?:lib[\\/]python\d[^\\/]*|(?:site|dist)-packages)[\\/]", re.IGNORECASE
)
_WITHOUT_VALUES = {"", "FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER", "STREAM_FAILED"}
"""Conditions whose text has no values of rows, which could look like a reason."""
_EXPIRED = ("OffsetOutOfRangeException", "KAFKA_DATA_LOSS")
_SHOWN = 300
HINTS = {
    "PATH_NOT_FOUND": "check 'path'",
    "COLUMN_ALREADY_EXISTS": "names must differ by more than case; set "
    "spark.conf 'spark.sql.caseSensitive' to true, or 'schema'",
    "AMBIGUOUS_REFERENCE": "the names differ only by case: deselect one of the columns, or set "
    "spark.conf 'spark.sql.caseSensitive' to \"true\"",
    "CANNOT_MERGE_SCHEMAS": "the files disagree on a column's type; set 'schema'",
    "TABLE_OR_VIEW_NOT_FOUND": "it was dropped or renamed, or its catalog is not in 'spark.conf'",
    "FAILED_READ_FILE.FILE_NOT_EXIST": "it was deleted during the run, or with old versions of the "
    "table: with LOG_BASED remove the stream's bookmark to read it from the start",
    "FAILED_READ_FILE": "the file is damaged, or not of the stream's format and schema",
}


def all_of(errors: Sequence[SourceError]) -> SourceError:
    """Return one error that names all of them."""
    if len(errors) == 1:
        return errors[0]
    passes = all(error.retryable for error in errors)
    return SourceError("; ".join(map(str, errors)), passes=passes)


def source_error(stream: str, error: BaseException) -> SourceError:
    """Convert an error that Spark raised while reading a stream to one SourceError.

    Args:
        stream: The stream that was read.
        error: What PySpark raised.
    """
    if isinstance(error, SourceError):
        return error
    of_database = database_error(error, Where(stream=stream))
    if of_database is not None:
        return of_database
    text = str(error)
    marked = _MARKED.search(text)
    if marked:
        return _row_error(stream, marked.group(1))
    cast = _VALUE.search(text)
    if cast:
        value, kind = cast.groups()
        return SourceError(
            f"the value {json.dumps(value)} cannot be read as {kind}", where=Where(stream=stream)
        )
    header = _HEADER.search(text)
    if header:
        found, expected = (part.strip() for part in header.groups())
        file = _CSV_FILE.search(text)
        return SourceError(
            f"the header {found} differs from that of the other files: {expected}",
            where=Where(stream=stream, file=plain_path(file.group(1)) if file else None),
            hint="read files with other columns as a stream of their own",
        )
    return _python_error(stream, text) or _spark_error(stream, error, text)


def row_failure(**parts: str) -> str:
    """Return the marked text of a failure, to be raised by Python code on an executor."""
    return BEGIN + json.dumps(parts) + END


def _row_error(stream: str, text: str) -> SourceError:
    try:
        parts = json.loads(text)
    except ValueError:
        parts = {"problem": text}
    found = parts.get("value")
    shown = f": {found[:_SHOWN]}" if isinstance(found, str) else ""
    return SourceError(
        parts.get("problem", "a row cannot be read") + shown,
        where=Where(stream=stream, file=plain_path(parts.get("file") or "") or None),
        hint=parts.get("hint", ""),
    )


def _python_error(stream: str, text: str) -> SourceError | None:
    """Return an error for what a user's own Python code raised; None if it was not that."""
    trace = text.rpartition(_TRACEBACK)[2] if _TRACEBACK in text else ""
    trace = re.split(r"\n\s+at |\s+SQLSTATE: ", trace)[0]
    frames = list(_FRAME.finditer(trace))
    theirs = [frame for frame in frames if not _OURS.search(frame.group(1))]
    if not theirs:
        return None
    place = ([frame for frame in theirs if not _LIBRARY.search(frame.group(1))] or theirs)[-1]
    lines = trace[frames[-1].end() :].splitlines()
    raised = " ".join(line.strip() for line in lines if line.strip() and line[:4] != "    ")
    return SourceError(
        f"the source's own code failed: {raised}"[:_SHOWN],
        where=Where(stream=stream, file=place.group(1), line=int(place.group(2))),
        passes=may_pass(RuntimeError(raised)),
    )


def _spark_error(stream: str, error: BaseException, text: str) -> SourceError:
    if any(sign in text for sign in s3a.MISSING) and "s3" in text:
        return SourceError("Spark has no S3 file system", where=Where(stream=stream), hint=s3a.HINT)
    if any(sign in text for sign in _EXPIRED):
        return SourceError(
            "messages expired before they were read",
            where=Where(stream=stream),
            hint="set 'on_data_loss' to 'continue' to read what is left, or run more often",
        )
    colon = _COLON.search(text)
    if colon:
        return SourceError(
            f"Spark cannot read files with ':' in their names: {colon[1] or colon[2]}",
            where=Where(stream=stream),
            hint="rename it; csv, text, fixed_width, json and parquet without 'options' read it",
        )
    # The plan follows the message; its `[NAMES]` are not error conditions.
    conditions = _CONDITION.findall(re.split(r";\n(?=')", text)[0])
    file = _FILE.search(text)
    path = next((group for group in file.groups() if group), None) if file else None
    condition = conditions[0][0] if conditions else ""
    messages = [message.split(" SQLSTATE")[0].strip() for _, message in conditions]
    reason = next((message for message in reversed(messages) if message), "")
    reason = reason or java_reason(text) or type(error).__name__
    is_missing = any(sign in text for sign in MISSING_FILE)
    hint = HINTS.get(condition) or HINTS.get(condition.split(".")[0], "")
    hint = hint or (SHARED_FOLDER if is_missing else "")
    return SourceError(
        f"Spark cannot read it: {reason}"[:_SHOWN],
        where=Where(stream=stream, file=plain_path(path) if path else None),
        hint=hint,
        passes=condition.partition(".")[0] in _WITHOUT_VALUES and may_pass(error),
    )
