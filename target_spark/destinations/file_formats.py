"""Declares the formats of files: see `target_spark.destinations.files`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from target_spark.destinations.declaration import Declaration, Supports

if TYPE_CHECKING:
    from target_spark.config import TargetConfig
    from target_spark.destinations.contract import Destination, Tools


def _open(config: TargetConfig, tools: Tools) -> Destination:
    from target_spark.destinations.files import FileDestination, file_settings  # noqa: PLC0415

    return FileDestination(file_settings(config), tools.rewrite)


_SUPPORTS = Supports(overwrite=True, new_columns=True, exactly_once=True, versions=True)

FILE_FORMATS = tuple(
    Declaration(name, "files", _open, supports=_SUPPORTS)
    for name in ("parquet", "json", "csv", "orc")
)
