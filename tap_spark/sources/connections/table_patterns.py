"""Selection of a connection's tables, and names of their streams. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from tap_spark.connection_config import ConnectionConfig


def is_wanted(config: ConnectionConfig, schema: str | None, table: str) -> bool:
    """Return whether `include` and `exclude` select a table.

    Args:
        config: The connection.
        schema: Its schema; without one, patterns match the table's name alone.
        table: Its name.
    """
    name = table if schema is None else f"{schema}.{table}"
    included = any(fnmatchcase(name, pattern) for pattern in config.include)
    return included and not any(fnmatchcase(name, pattern) for pattern in config.exclude)


def stream_name(config: ConnectionConfig, parts: Sequence[str]) -> str:
    """Return the name of a table's stream as in the SDK: `schema-table`, after the prefix."""
    return config.stream_prefix + "-".join(parts)
