"""Every format: of this package, and of installed packages."""

from __future__ import annotations

from collections.abc import Mapping

from shared import extensions
from tap_spark.sources.declared import python
from tap_spark.sources.source_declaration import SourceFormat
from tap_spark.stream_config import is_python_source

NAMES = (
    *("csv", "json", "parquet", "orc", "text", "avro", "xml", "fixed_width"),
    *("delta", "iceberg", "jdbc", "table", "sql", "kafka", "rows"),
)
BUILT_IN = extensions.built_in(
    SourceFormat, (f"tap_spark.sources.declared.{name}:SOURCE" for name in NAMES)
)
"""The formats of this package; to add one, add a module to `declared` and its name above."""


def _clash(form: SourceFormat, known: Mapping[str, SourceFormat]) -> str | None:
    """Return why a format's settings or names conflict with another format; None if not."""
    if is_python_source(form.name):
        return "it looks like package.module.Class"
    for other in known.values():
        for name in form.settings.keys() & other.settings.keys():
            if form.settings[name] != other.settings[name]:
                return f"its setting '{name}' differs from that of the format '{other.name}'"
    taken = {name for other in known.values() for name in (other.name, *other.aliases)}
    for alias in form.aliases:
        if alias in taken:
            return f"its alias '{alias}' is the name of another format"
    return f"the name '{form.name}' is an alias of another format" if form.name in taken else None


_DECLARED = extensions.declared(extensions.SOURCES, SourceFormat, BUILT_IN, _clash)

SOURCES = _DECLARED.items
"""Every format by its name."""
FORMATS = tuple(SOURCES)
FILE_FORMATS = tuple(form.name for form in SOURCES.values() if form.resumes)
"""Formats that INCREMENTAL resumes without a replication key."""
LOG_FORMATS = tuple(form.name for form in SOURCES.values() if form.has_log)
"""Formats with a log of changes."""

_NAMED = {name: form for form in SOURCES.values() for name in (form.name, *form.aliases)}


def source_format(name: object) -> SourceFormat | None:
    """Find a format by name or alias; None if it does not exist."""
    if is_python_source(name):
        return python.SOURCE
    return _NAMED.get(name) if isinstance(name, str) else None


def added_formats() -> dict[str, str]:
    """Return the formats of installed packages, each with its package."""
    return dict(_DECLARED.packages)


def check_sources() -> None:
    """Check that every installed format can be used.

    Raises:
        InvalidSettingsError: With every problem.
    """
    _DECLARED.check()
