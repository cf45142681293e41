"""Declarations of sources: plain data, from which settings, checks and docs derive.

Every run imports all declarations, even `--help`, so their modules import neither PySpark nor
PyArrow at the top. Options of readers are those that Spark 4.1, spark-avro, Delta and Iceberg
themselves list for reading, without those that only writers or streaming queries use.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.settings.checking import Schema, nearest
from shared.spark.packages import Need

COMPRESSED = (".gz", ".gzip", ".bz2", ".zst", ".zstd", ".lz4", ".snappy", ".deflate", ".xz")
"""Endings of files that Spark decompresses, by their names."""


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
    """Return options of one kind; spaces separate their names."""
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
    """Yield options of a stream that Spark would ignore or reject, and what is wrong with each.

    Names with a dot (`fs.s3a.endpoint`) are Hadoop's and are not checked.

    Args:
        kind: The stream's format.
        reader: The options of its reader; None if it takes any.
        options: The options in the settings.
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
            match = nearest(name, (option.name for option in reader))
            hint = f"; did you mean {match!r}?" if match else ""
            yield name, f"is not an option for reading the format {kind!r}{hint}"
        else:
            problem = _wrong(option, value)
            if problem:
                yield name, problem


def _wrong(option: Option, value: object) -> str | None:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, float) and value.is_integer():
        text = str(int(value))
    if option.words:
        good = text.upper() in option.words
        return None if good else f"must be one of {', '.join(option.words)}"
    if option.kind == "encoding":
        return None if encoding_name(text) else "is not the name of an encoding"
    if option.kind in _FORMS:
        words, form = _FORMS[option.kind]
        return None if form.fullmatch(text.strip()) else f"must be {words}"
    return None


SHARED = ("path", "table", "query", "connection", "options", "schema", "read_unterminated_line")
"""Every setting that applies to formats that name it."""

GENERAL = (
    "name",
    "format",
    "key_properties",
    "replication_key",
    "replication_method",
    "end_date",
    "deletes",
    "deletes_every",
    "sort_by_replication_key",
)
"""Settings that apply to every format."""

StreamRule = Callable[[Mapping[str, Any]], Iterator[tuple[str, str]]]
"""A check of one item of `streams`: yields a setting and what is wrong with it."""


@dataclass(frozen=True)
class SourceFormat:
    """One format of the tap.

    Attributes:
        name: Name of the format in the settings.
        implementation: `package.module:Class` of the `Source`; imported when a stream is read.
        description: One sentence for `--about`; not needed in this package.
        aliases: Other names for it.
        places: Settings that locate the rows; a stream has exactly one of them.
        takes: Further settings of `SHARED` that apply to the format.
        connects: Kind of the connections that `connection` may name.
        settings: JSON Schemas of its own settings, each with a description.
        required: Settings of `takes` and `settings` that a stream must have.
        typed: Turns the stream's own settings, once validated, into their typed form.
        options: The options of its reader; None if it takes any.
        required_options: Options that a stream must have, each with its description.
        resumes: Whether INCREMENTAL without a replication key resumes after the last run.
        on_driver: Whether its class may read a stream without Spark (`DriverSource`).
        driver: `package.module:Class` of a `DriverSource` that reads what has no bookmark; None for
            `implementation`.
        keys_on_driver: Whether that includes streams with a replication key.
        why_spark: `package.module:function` that says of a stream's settings why only Spark reads
            it; empty text if it may be read without. None if every stream may.
        has_tasks_alone: Whether Spark never passes its rows through Java, which only schedules
            tasks.
        has_log: Whether LOG_BASED reads changes, deletes included.
        default_method: Replication method of streams that set neither a method nor a key; None
            for FULL_TABLE.
        needs: The package that Spark needs to read the format.
        rules: Checks between the settings of a stream.

    Raises:
        ValueError: It contradicts itself.
    """

    name: str
    implementation: str
    description: str = ""
    aliases: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    connects: str = "url"
    settings: Mapping[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    typed: Callable[[dict[str, Any]], dict[str, Any]] = dict
    options: tuple[Option, ...] | None = None
    required_options: Mapping[str, str] = field(default_factory=dict)
    resumes: bool = False
    on_driver: bool = False
    driver: str | None = None
    keys_on_driver: bool = False
    why_spark: str | None = None
    has_tasks_alone: bool = False
    has_log: bool = False
    default_method: str | None = None
    needs: Need | None = None
    rules: tuple[StreamRule, ...] = ()

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ValueError(f"source format '{self.name}': {problem}")

    @property
    def fields(self) -> tuple[str, ...]:
        """Return every setting that applies to the format, but not to every format."""
        return tuple(dict.fromkeys((*self.places, *self.takes, *self.settings)))


def _problems(form: SourceFormat) -> Iterator[str]:
    if form.implementation.count(":") != 1:
        yield f"'implementation' is '{form.implementation}', not package.module:Class"
    for name in (*form.places, *form.takes, *form.required):
        if name not in SHARED and name not in form.settings:
            yield f"'{name}' is neither a shared setting nor one of 'settings'"
    for name, schema in form.settings.items():
        if name in SHARED or name in GENERAL:
            yield f"'{name}' is a shared setting: name it in 'places' or 'takes'"
        if not isinstance(schema, Mapping) or not {"type", "description"} <= schema.keys():
            yield f"the setting '{name}' needs a JSON Schema with 'type' and 'description'"
    if form.options is not None and "options" not in form.takes:
        yield "it has 'options', but does not take the setting"
