"""Declares Delta and Iceberg tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.spark.packages import LAKES
from target_spark.destinations.destination_declaration import TABLE_SETTINGS, Declaration, Supports

if TYPE_CHECKING:
    from target_spark.destinations.destination import Destination, Tools
    from target_spark.run_settings import TargetConfig


def _delta(config: TargetConfig, tools: Tools) -> Destination:
    from target_spark.destinations.lakes.delta.delta_format import delta_destination  # noqa: PLC0415

    return delta_destination(config, tools.spark)


def _iceberg(config: TargetConfig, tools: Tools) -> Destination:
    from target_spark.destinations.lakes.iceberg.iceberg_format import iceberg_destination  # noqa: PLC0415

    return iceberg_destination(config, tools.spark)


def _needs_spark(config: TargetConfig) -> str:
    """Return why Spark must commit to Delta tables: no plain folders, or versioned rows."""
    from importlib.util import find_spec  # noqa: PLC0415

    from shared.spark.shared_disk import executors_share_disk  # noqa: PLC0415
    from shared.storage.urls import local_path  # noqa: PLC0415

    methods = {config.load_method, *(own.get("load_method") for own in config.streams.values())}
    others = methods - {"append-only", "upsert", "overwrite", None}
    reasons = {
        "tables in a catalog": config.catalog is not None,
        "tables on remote storage": config.catalog is None and local_path(config.path) is None,
        "the package deltalake is not installed": find_spec("deltalake") is None,
        "write_audit_publish": config.write_audit_publish,
        "executors on other machines": not executors_share_disk(config.spark),
        f"load_method {', '.join(map(str, others))}": bool(others),
    }
    return next((why for why, applies in reasons.items() if applies), "")


_SUPPORTS = Supports(
    upsert=True,
    history=True,
    overwrite=True,
    new_columns=True,
    exactly_once=True,
    replays=True,
    versions=True,
    views=True,
    backfill=True,
    leases=True,
    verify=True,
    repair=True,
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
        needs_spark=needs_spark,
        notes={"views": "in a `catalog`"},
    )
    for name, title, opened, needs_spark in (
        ("delta", "Delta", _delta, _needs_spark),
        ("iceberg", "Iceberg", _iceberg, lambda _: "Iceberg tables"),
    )
)
