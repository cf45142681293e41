"""Declares databases, with their block of settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shared.settings.checking import text_values
from target_spark.destinations.databases.jdbc_settings import JdbcSettings
from target_spark.destinations.destination_declaration import TABLE_SETTINGS, Declaration, Supports

if TYPE_CHECKING:
    from target_spark.config import TargetConfig
    from target_spark.destinations.destination import Destination, Tools


def _typed(block: Mapping[str, Any]) -> JdbcSettings:
    return JdbcSettings(
        url=block["url"],
        user=block.get("user"),
        password=block.get("password"),
        options=text_values(block.get("options", {})),
    )


def _open(config: TargetConfig, tools: Tools) -> Destination:
    from target_spark.destinations.databases.database_destination import jdbc_destination  # noqa: PLC0415

    return jdbc_destination(config, tools.spark)


_NAME = {"type": "string", "minLength": 1}
_LAYOUT = frozenset({"partition_by", "target_file_bytes", "compact"})

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
    ),
    block={
        "type": "object",
        "additionalProperties": False,
        "required": ["url"],
        "description": "Database to load into, with the format `jdbc`.",
        "properties": {
            "url": {
                **_NAME,
                "secret": True,
                "description": "JDBC URL of a PostgreSQL, MySQL or MariaDB database.",
                "examples": ["jdbc:postgresql://localhost:5432/warehouse"],
            },
            "user": {**_NAME, "description": "User of the database."},
            "password": {"type": "string", "secret": True, "description": "Password of the user."},
            "options": {
                "type": "object",
                "additionalProperties": {"type": ["string", "number", "boolean"], "secret": True},
                "description": "Properties of the connection.",
                "examples": [{"sslmode": "verify-full"}],
            },
        },
    },
    typed=_typed,
    uses=frozenset(TABLE_SETTINGS) - _LAYOUT,
    ignores=_LAYOUT,
    notes={"replays": "PostgreSQL"},
)
