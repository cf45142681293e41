"""Loads into Iceberg tables, in a Hadoop catalog below a path or in a JDBC catalog on SQLite."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lake_loads import Load

from target_spark.destinations.lakes.sessions import own_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class IcebergLoad(Load):
    """Runs of a target over one stream into an Iceberg table."""

    def reader(self) -> SparkSession:
        """A session that has read nothing yet."""
        return own_session(self.spark, self.destination._form.conf)

    def sql(self, statement: str) -> list[Any]:
        """Runs a statement as another program would; `{t}` is the table."""
        return self.reader().sql(statement.replace("{t}", self.name)).collect()

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """The table's rows, sorted."""
        frame = self.reader().table(self.name)
        frame = frame.select(*columns) if columns else frame
        return sorted((tuple(row) for row in frame.collect()), key=repr)

    def columns(self) -> list[tuple[str, str]]:
        struct = self.reader().table(self.name).schema
        return [(f.name, f.dataType.simpleString()) for f in struct]

    def history(self) -> list[Any]:
        return self.sql("SELECT * FROM {t}.snapshots ORDER BY committed_at")

    def properties(self) -> dict[str, str]:
        return {row[0]: row[1] for row in self.sql("SHOW TBLPROPERTIES {t}")}


def sqlite_catalog(folder: Path) -> dict[str, str]:
    """Configuration of a JDBC catalog in a file, without its name."""
    return {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{folder}/catalog.db",
        ".jdbc.schema-version": "V1",
        ".warehouse": str(folder),
    }
