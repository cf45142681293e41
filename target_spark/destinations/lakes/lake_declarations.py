"""Declares Delta and Iceberg tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.spark.packages import LAKES
from target_spark.destinations.destination_declaration import TABLE_SETTINGS, Declaration, Supports

if TYPE_CHECKING:
    from target_spark.config import TargetConfig
    from target_spark.destinations.destination import Destination, Tools


def _delta(config: TargetConfig, tools: Tools) -> Destination:
    from target_spark.destinations.lakes.delta.delta_format import delta_destination  # noqa: PLC0415

    return delta_destination(config, tools.spark)


def _iceberg(config: TargetConfig, tools: Tools) -> Destination:
    from target_spark.destinations.lakes.iceberg.iceberg_format import iceberg_destination  # noqa: PLC0415

    return iceberg_destination(config, tools.spark)


_SUPPORTS = Supports(
    upsert=True,
    overwrite=True,
    new_columns=True,
    exactly_once=True,
    replays=True,
    versions=True,
    views=True,
)

DELTA, ICEBERG = (
    Declaration(
        name=name,
        title=title,
        open=opened,
        places=("path", "catalog"),
        supports=_SUPPORTS,
        uses=frozenset(TABLE_SETTINGS),
        needs=(LAKES[name],),
        notes={"views": "in a `catalog`"},
    )
    for name, title, opened in (("delta", "Delta", _delta), ("iceberg", "Iceberg", _iceberg))
)
