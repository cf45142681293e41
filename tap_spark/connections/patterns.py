"""Which tables of a connection are wanted, and what their streams are called. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from tap_spark.connection_config import ConnectionConfig


def is_wanted(config: ConnectionConfig, schema: str | None, table: str) -> bool:
    """Whether `include` and `exclude` ask for a table.

    Args:
        config: The connection.
        schema: Its schema; None where there is none: patterns then see the table's name alone.
        table: Its name.
    """
    name = table if schema is None else f"{schema}.{table}"
    included = any(fnmatchcase(name, pattern) for pattern in config.include)
    return included and not any(fnmatchcase(name, pattern) for pattern in config.exclude)


def stream_name(config: ConnectionConfig, parts: Sequence[str]) -> str:
    """Name the stream of a table as the SDK does: `schema-table`, behind the prefix."""
    return config.stream_prefix + "-".join(parts)
