"""Locations of Iceberg tables: in a catalog of the user, or below a path in our own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from shared.errors import SettingsError
from shared.storage.urls import join, local_path, shown
from target_spark.core.load_plans import TableName
from target_spark.destinations.folders.table_folder import folder_name
from target_spark.destinations.lakes.lake_sql import quoted
from target_spark.destinations.lakes.lake_table import Place, absolute
from target_spark.destinations.lakes.shared_tables import storage_conf
from target_spark.tables.table_changes import NameRules, legal_table_name

if TYPE_CHECKING:
    from target_spark.run_settings import TargetConfig

PATH_CATALOG = "singer_iceberg"
"""Name of the Hadoop catalog whose warehouse is the setting `path`."""

NAMESPACE = "default"
"""Namespace in a catalog if a schema is not set."""

_HIVE_REFUSES = "types incompatible with the existing columns"
_HIVE_SETTING = "hive.metastore.disallow.incompatible.col.type.changes"
_RULES = NameRules(style="clean", max_bytes=128, ignore_case=True)


def catalog_conf(config: TargetConfig) -> Mapping[str, str]:
    """Return the configuration of the catalog in our own session.

    Tables are not cached, as others write to them, too; and tables created from rows keep NOT NULL.

    Args:
        config: The settings.
    """
    name = f"spark.sql.catalog.{config.catalog or PATH_CATALOG}"
    conf = {f"{name}.cache-enabled": "false", f"{name}.use-nullable-query-schema": "false"}
    if config.catalog is not None:
        settings = {
            key: text
            for key, text in config.spark.conf.items()
            if key == name or key.startswith(f"{name}.")
        }
        return {**settings, **conf}
    default = {name: "org.apache.iceberg.spark.SparkCatalog", f"{name}.type": "hadoop"}
    default[f"{name}.warehouse"] = absolute(config.path)
    return {**storage_conf(config), **default, **conf}


def location_of(path: str, catalog: str | None, name: TableName) -> Place:
    """Return the location of a table.

    Args:
        path: The setting `path`.
        catalog: The setting `catalog`, which has precedence.
        name: Name of the table.
    """
    if catalog is not None:
        inside = (legal_table_name(part, _RULES) for part in (name.schema or NAMESPACE, name.table))
        parts = (catalog, *inside)
        return Place(quoted(*parts), ".".join(parts))
    return place_below(path, *(folder_name(part) for part in (name.schema, name.table) if part))


def place_below(path: str, *folders: str) -> Place:
    """Return the location of a table in folders below the setting `path`."""
    folder = join(absolute(path), *folders)
    return Place(quoted(PATH_CATALOG, *folders), f"'{shown(folder)}'", folder)


def check_empty(folder: str | None) -> None:
    """Reject a local folder with other content for a new table.

    Raises:
        SettingsError: The folder has other files, which would not be rows of the table.
    """
    path = None if folder is None else local_path(folder)
    if path is None or not Path(path).is_dir():
        return
    names = sorted(entry.name for entry in Path(path).iterdir() if entry.name[0] not in "._")
    if names and "metadata" not in names:
        raise SettingsError(
            f"'{path}' is not an Iceberg table: it contains '{names[0]}'",
            hint="use another path, table_prefix or default_target_schema",
        )


@contextmanager
def hive_refusals() -> Iterator[None]:
    """Raise a permanent error for a commit that the Hive metastore always rejects.

    Raises:
        SettingsError: The metastore compares columns by position, as older formats need it.
    """
    try:
        yield
    except Exception as error:
        if _HIVE_REFUSES not in str(error):
            raise
        raise SettingsError(
            "the Hive metastore rejects a column of another type in the position of a known one",
            hint=f"set {_HIVE_SETTING} to false in the metastore's hive-site.xml",
        ) from error
