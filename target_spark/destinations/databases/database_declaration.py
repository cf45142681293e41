"""Declares databases, with their block of settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.settings.kinds import schema_of, typed
from target_spark.destinations.databases.jdbc_settings import JdbcSettings
from target_spark.destinations.destination_declaration import TABLE_SETTINGS, Declaration, Supports

if TYPE_CHECKING:
    from target_spark.destinations.destination import Destination, Tools
    from target_spark.run_settings import TargetConfig


def _open(config: TargetConfig, tools: Tools) -> Destination:
    from target_spark.destinations.databases.database_destination import jdbc_destination  # noqa: PLC0415

    return jdbc_destination(config, tools.spark)


_LAYOUT = frozenset({"partition_by", "target_file_bytes", "compact"})
_LAKES_ONLY = frozenset({"write_audit_publish", "maintenance"})

JDBC = Declaration(
    name="jdbc",
    title="databases",
    open=_open,
    places=("jdbc",),
    supports=Supports(
        upsert=True,
        overwrite=True,
        new_columns=True,
        exactly_once=True,
        replays=True,
        versions=True,
        views=True,
        backfill=True,
        verify=True,
        repair=True,
        leases=True,
    ),
    block=schema_of(JdbcSettings, "Database to load into, with the format `jdbc`."),
    typed=partial(typed, JdbcSettings),
    uses=frozenset(TABLE_SETTINGS) - _LAYOUT - _LAKES_ONLY,
    ignores=_LAYOUT,
    needs_spark=lambda _: "",
    notes={"replays": "PostgreSQL"},
)
