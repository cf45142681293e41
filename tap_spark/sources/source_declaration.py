"""Declarations of sources: plain data, from which settings, checks and docs derive.

Every run imports all declarations, even `--help`, so their modules import neither PySpark nor
PyArrow at the top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.settings.checking import Schema
from shared.spark.packages import Need
from tap_spark.sources.reader_options import Option

SHARED_PLACES = ("path", "table", "query")
"""Settings that locate the rows, and that several formats may use."""

SHARED = (*SHARED_PLACES, "connection", "options", "schema", "read_unterminated_line")
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
        keys_on_driver: Whether that includes streams with a replication key.
        why_spark: `package.module:function` that says of a stream's settings why only Spark reads
            it; empty text if it may be read without. None if every stream may.
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
    keys_on_driver: bool = False
    why_spark: str | None = None
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
