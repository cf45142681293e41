"""Options of Spark's readers: their names, types and allowed values.

Each format declares its own (`tap_spark.sources.formats`). The names are those that Spark 4.1,
spark-avro, Delta and Iceberg themselves list for reading, without those that only writers or
streaming queries use.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shared.settings.checking import nearest


@dataclass(frozen=True)
class Option:
    """An option of a reader.

    Attributes:
        name: As Spark writes it; upper and lower case are the same to Spark.
        kind: `text`, `boolean`, `integer`, `number` or `encoding`.
        words: The allowed values, if they are few.
    """

    name: str
    kind: str = "text"
    words: tuple[str, ...] = ()


def named(kind: str, text: str) -> tuple[Option, ...]:
    """Return options of one kind.

    Args:
        kind: As in `Option`.
        text: Their names, with spaces between them.
    """
    return tuple(Option(name, kind) for name in text.split())


MODE = (Option("mode", words=("PERMISSIVE", "DROPMALFORMED", "FAILFAST")),)
REBASE = ("EXCEPTION", "CORRECTED", "LEGACY")
FILES = (
    *named("text", "basePath modifiedAfter modifiedBefore pathGlobFilter timeZone"),
    *named("boolean", "ignoreCorruptFiles ignoreMissingFiles ignoreInvalidPartitionPaths"),
    *named("boolean", "recursiveFileLookup"),
)
"""Options of every reader of files."""
TIMES = (
    *named("text", "dateFormat timestampFormat timestampNTZFormat locale"),
    *named("boolean", "enableDateTimeParsingFallback"),
)
"""Options of readers that parse dates and times."""
PARSED = (
    *named("encoding", "encoding charset"),
    *named("text", "columnNameOfCorruptRecord singleVariantColumn"),
    *named("number", "samplingRatio"),
    *MODE,
)
"""Options of readers that parse text."""
AS_OF = named("text", "versionAsOf timestampAsOf")
"""Options of tables with versions."""
NOT_RESUMED = ("pathGlobFilter", "recursiveFileLookup", "modifiedAfter", "modifiedBefore")
"""Options that select files, which conflict with reading by file and line."""
_ALIASES = {
    "ms932": "cp932",
    "ms936": "cp936",
    "ms949": "cp949",
    "ms950": "cp950",
    "x-sjis": "shift_jis",
    "windows-31j": "cp932",
}
_NOT_TEXT = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"})
_FORMS = {
    "boolean": ("true or false", re.compile(r"true|false", re.IGNORECASE)),
    "integer": ("an integer", re.compile(r"-?[0-9]+")),
    "number": ("a number", re.compile(r"[0-9]*\.?[0-9]+([eE]-?[0-9]+)?")),
}


def encoding_name(name: str) -> str | None:
    """Return Python's name of an encoding that Java or Python knows; None if neither does."""
    lower = name.strip().lower()
    names = (lower, _ALIASES.get(lower, lower), lower.removeprefix("x-"))
    for one in (*names, lower.replace("x-windows-", "cp"), lower.replace("x-mac", "mac-")):
        try:
            codec = codecs.lookup(one)
        except (LookupError, ValueError):
            continue
        is_text = getattr(codec, "_is_text_encoding", True)
        return codec.name if is_text and codec.name not in _NOT_TEXT else None
    return None


def option_problems(
    kind: str, reader: Sequence[Option] | None, options: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    """Find options that Spark would ignore or reject.

    Names with a dot (`fs.s3a.endpoint`) are Hadoop's and are not checked.

    Args:
        kind: The stream's format.
        reader: The options of its reader; None if it takes any.
        options: The options in the settings.

    Yields:
        The option, and what is wrong with it.
    """
    declared = {option.name.lower(): option for option in reader or ()}
    seen: dict[str, str] = {}
    for name, value in options.items():
        first = seen.setdefault(name.lower(), name)
        if first != name:
            yield name, f"is the same option as {first!r}; give one of them"
        if reader is None or "." in name:
            continue
        option = declared.get(name.lower())
        if option is None:
            yield name, _unknown(kind, name, reader)
        else:
            problem = _wrong(option, value)
            if problem:
                yield name, problem


def _unknown(kind: str, name: str, reader: Sequence[Option]) -> str:
    match = nearest(name, (option.name for option in reader))
    hint = f"; did you mean {match!r}?" if match else ""
    return f"is not an option for reading the format {kind!r}{hint}"


def _wrong(option: Option, value: object) -> str | None:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, float) and value.is_integer():
        text = str(int(value))
    if option.words:
        good = text.upper() in option.words
        return None if good else f"must be one of {_listed(option.words)}"
    if option.kind == "encoding":
        return None if encoding_name(text) else "is not the name of an encoding"
    if option.kind in _FORMS:
        words, form = _FORMS[option.kind]
        return None if form.fullmatch(text.strip()) else f"must be {words}"
    return None


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)
