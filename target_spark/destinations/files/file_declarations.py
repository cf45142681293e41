"""Declares the formats of files: see `target_spark.destinations.files.file_destination`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from target_spark.destinations.destination_declaration import Declaration, Supports

if TYPE_CHECKING:
    from target_spark.destinations.destination import Destination, Tools
    from target_spark.run_settings import TargetConfig


def _open(config: TargetConfig, tools: Tools) -> Destination:
    from target_spark.destinations.files.file_destination import FileDestination, file_settings  # noqa: PLC0415
    from target_spark.destinations.leases.table_leases import folder_leases  # noqa: PLC0415

    return FileDestination(file_settings(config), tools.rewrite, folder_leases(config), tools.spark)


def _needs_spark(config: TargetConfig) -> str:
    return "Spark makes the text of JSON tables" if config.format == "json" else ""


_USES = frozenset({"schema_contract", "partition_by"})
_SUPPORTS = Supports(
    overwrite=True, new_columns=True, exactly_once=True, versions=True, leases=True, verify=True
)

FILE_FORMATS = tuple(
    Declaration(name, "files", _open, supports=_SUPPORTS, uses=_USES, needs_spark=_needs_spark)
    for name in ("parquet", "json", "csv", "orc")
)
