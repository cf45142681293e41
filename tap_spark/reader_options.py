"""The options of Spark's readers: which there are, and what values they take.

The names are those that Spark 4.1, spark-avro, Delta and Iceberg themselves list for reading;
those that only writers or streaming queries use are left out. Formats that are not in `OPTIONS`
take any option, as only the catalog, driver or class behind them knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shared.settings_check import nearest


@dataclass(frozen=True)
class Option:
    """An option.

    Attributes:
        name: As Spark writes it; upper and lower case are the same to Spark.
        kind: `text`, `boolean`, `integer` or `number`.
        words: What it may say, where these are few.
    """

    name: str
    kind: str = "text"
    words: tuple[str, ...] = ()


def _named(kind: str, text: str) -> tuple[Option, ...]:
    return tuple(Option(name, kind) for name in text.split())


_MODE = (Option("mode", words=("PERMISSIVE", "DROPMALFORMED", "FAILFAST")),)
_REBASE = ("EXCEPTION", "CORRECTED", "LEGACY")
_FILES = (
    *_named("text", "basePath modifiedAfter modifiedBefore pathGlobFilter timeZone"),
    *_named("boolean", "ignoreCorruptFiles ignoreMissingFiles ignoreInvalidPartitionPaths"),
    *_named("boolean", "recursiveFileLookup"),
)
_TIMES = (
    *_named("text", "dateFormat timestampFormat timestampNTZFormat locale"),
    *_named("boolean", "enableDateTimeParsingFallback"),
)
_PARSED = (
    *_named("text", "encoding charset columnNameOfCorruptRecord singleVariantColumn"),
    *_named("number", "samplingRatio"),
    *_MODE,
)
_SINCE = _named("text", "startingVersion startingTimestamp endingVersion endingTimestamp")
_AS_OF = _named("text", "versionAsOf timestampAsOf")

OPTIONS: Mapping[str, tuple[Option, ...]] = {
    "csv": (
        *_FILES,
        *_TIMES,
        *_PARSED,
        *_named("text", "sep delimiter quote escape charToEscapeQuoteEscaping comment lineSep"),
        *_named("text", "nullValue emptyValue nanValue positiveInf negativeInf"),
        *_named("boolean", "header inferSchema enforceSchema multiLine preferDate columnPruning"),
        *_named("boolean", "ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace"),
        *_named("integer", "maxColumns maxCharsPerColumn inputBufferSize"),
        Option(
            "unescapedQuoteHandling",
            words=(
                "STOP_AT_CLOSING_QUOTE",
                "BACK_TO_DELIMITER",
                "STOP_AT_DELIMITER",
                "SKIP_VALUE",
                "RAISE_ERROR",
            ),
        ),
    ),
    "json": (
        *_FILES,
        *_TIMES,
        *_PARSED,
        *_named("text", "lineSep"),
        *_named("boolean", "multiLine primitivesAsString prefersDecimal dropFieldIfAllNull"),
        *_named("boolean", "allowComments allowUnquotedFieldNames allowSingleQuotes"),
        *_named("boolean", "allowNumericLeadingZeros allowBackslashEscapingAnyCharacter"),
        *_named("boolean", "allowUnquotedControlChars allowNonNumericNumbers inferTimestamp"),
        *_named("boolean", "useUnsafeRow"),
    ),
    "xml": (
        *_FILES,
        *_TIMES,
        *_PARSED,
        *_named("text", "rowTag attributePrefix valueTag nullValue rowValidationXSDPath"),
        *_named("text", "wildcardColName"),
        *_named("boolean", "inferSchema excludeAttribute ignoreSurroundingSpaces ignoreNamespace"),
        *_named("boolean", "multiLine preferDate prefersDecimal useLegacyXMLParser"),
    ),
    "text": (*_FILES, *_named("text", "encoding lineSep"), *_named("boolean", "wholetext")),
    "parquet": (
        *_FILES,
        *_named("boolean", "mergeSchema"),
        Option("datetimeRebaseMode", words=_REBASE),
        Option("int96RebaseMode", words=_REBASE),
    ),
    "orc": (*_FILES, *_named("boolean", "mergeSchema")),
    "avro": (
        *_FILES,
        *_MODE,
        *_named("text", "avroSchema avroSchemaUrl stableIdentifierPrefixForUnionType"),
        *_named("boolean", "ignoreExtension positionalFieldMatching"),
        *_named("boolean", "enableStableIdentifiersForUnionType"),
        *_named("integer", "recursiveFieldMaxDepth"),
        Option("datetimeRebaseMode", words=_REBASE),
    ),
    "fixed_width": (
        *_FILES,
        *_named("text", "encoding charset comment lineSep"),
        *_named("boolean", "header"),
        Option("mode", words=("PERMISSIVE", "FAILFAST")),
    ),
    "delta": (*_AS_OF, *_SINCE, *_named("boolean", "readChangeFeed readChangeData")),
    "iceberg": (
        *_AS_OF,
        *_named("text", "tag branch as-of-timestamp start-timestamp end-timestamp"),
        *_named("integer", "snapshot-id start-snapshot-id end-snapshot-id"),
        *_named("integer", "split-size lookback file-open-cost batch-size"),
        *_named("boolean", "vectorization-enabled locality aggregate-push-down-enabled"),
    ),
    "jdbc": (
        *_named("text", "partitionColumn lowerBound upperBound sessionInitStatement customSchema"),
        *_named("text", "hint"),
        *_named("integer", "numPartitions fetchsize queryTimeout"),
    ),
}
NOT_RESUMED = ("pathGlobFilter", "recursiveFileLookup", "modifiedAfter", "modifiedBefore")
"""Options that choose among files, which reading by file and line does itself."""
_FORMS = {
    "boolean": ("true or false", re.compile(r"true|false", re.IGNORECASE)),
    "integer": ("an integer", re.compile(r"-?[0-9]+")),
    "number": ("a number", re.compile(r"[0-9]*\.?[0-9]+([eE]-?[0-9]+)?")),
}


def option_problems(kind: str, options: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Find what Spark would overlook or refuse.

    Names with a dot are not the reader's but Hadoop's (`fs.s3a.endpoint`) and pass.

    Args:
        kind: The stream's format.
        options: As the settings have them.

    Yields:
        The option, and what is wrong with it.
    """
    known = {option.name.lower(): option for option in OPTIONS.get(kind, ())}
    seen: dict[str, str] = {}
    for name, value in options.items():
        first = seen.setdefault(name.lower(), name)
        if first != name:
            yield name, f"is the same option as {first!r}; give one of them"
        if kind not in OPTIONS or "." in name:
            continue
        option = known.get(name.lower())
        if option is None:
            yield name, _unknown(kind, name)
        else:
            problem = _wrong(option, value)
            if problem:
                yield name, problem


def _unknown(kind: str, name: str) -> str:
    match = nearest(name, (option.name for option in OPTIONS[kind]))
    hint = f"; did you mean {match!r}?" if match else ""
    return f"is no option for reading the format {kind!r}{hint}"


def _wrong(option: Option, value: object) -> str | None:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, float) and value.is_integer():
        text = str(int(value))
    if option.words:
        good = text.upper() in option.words
        return None if good else f"must be one of {_listed(option.words)}"
    if option.kind in _FORMS:
        words, form = _FORMS[option.kind]
        return None if form.fullmatch(text.strip()) else f"must be {words}"
    return None


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)
