"""Rules and computed columns of Delta tables, as their properties and columns tell."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from shared.storage.urls import join
from target_spark.destinations.lakes.flush_frames import literal_path
from target_spark.destinations.lakes.lake_table import DEFAULT, LakeTable
from target_spark.destinations.lakes.merge import quoted
from target_spark.destinations.lakes.row_rules import RowRule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField, StructType

_CONSTRAINT = "delta.constraints."
_GENERATED = "delta.generationExpression"
_IDENTITY = "delta.identity.start"
_EXPLICIT = "delta.identity.allowExplicitInsert"
_INVARIANT = "delta.invariants"
_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
_FEATURES = {"delta.feature.generatedColumns", "delta.feature.identityColumns"}
_FIRST_COMPUTING, _FEATURE_WRITER = 4, 7


def delta_rules(now: LakeTable) -> Iterator[RowRule]:
    """Yield the rules of a table beside NOT NULL: CHECK constraints, invariants, lengths."""
    for name, text in now.properties.items():
        if name.startswith(_CONSTRAINT):
            yield _condition(f"CHECK constraint '{name[len(_CONSTRAINT) :]}'", text)
    for field in now.struct:
        metadata = field.metadata or {}
        if _INVARIANT in metadata:
            text = json.loads(metadata[_INVARIANT])["expression"]["expression"]
            yield _condition(f"invariant of '{field.name}'", text)
        length = re.search(r"\((\d+)\)$", metadata.get(_LENGTH, ""))
        if length is not None:
            column, most = quoted(field.name), length[1]
            yield RowRule(
                f"({column} IS NULL OR length({column}) <= {most})",
                f"the value is too long for its column (type {metadata[_LENGTH]})",
                field.name,
            )


def _condition(name: str, text: str) -> RowRule:
    return RowRule(f"({text})", f"the row does not fit a condition of the table: {name} ({text})")


def may_compute(properties: Mapping[str, str]) -> bool:
    """Return whether a table may have columns that it computes, by its protocol."""
    version = int(properties.get("delta.minWriterVersion", "0"))
    return not _FEATURES.isdisjoint(properties) or _FIRST_COMPUTING <= version < _FEATURE_WRITER


def computed_columns(struct: StructType) -> frozenset[str]:
    """Return the columns that rows cannot set."""
    return frozenset(field.name for field in struct if _is_computed(field))


def _is_computed(field: StructField) -> bool:
    metadata = field.metadata or {}
    return _GENERATED in metadata or (_IDENTITY in metadata and not metadata.get(_EXPLICIT))


def with_defaults(struct: StructType) -> StructType:
    """Return columns with the metadata `default` if rows may omit them."""
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415

    fields = []
    for field in struct:
        metadata = dict(field.metadata or {})
        if _GENERATED in metadata:
            metadata[DEFAULT] = metadata[_GENERATED]
        if DEFAULT in metadata or _IDENTITY in metadata:
            metadata["default"] = True
        fields.append(StructField(field.name, field.dataType, field.nullable, metadata))
    return StructType(fields)


def logged_struct(spark: SparkSession, location: str) -> StructType:
    """Return the columns of a table with all their metadata, as the newest entry of its log says.

    Args:
        spark: A session.
        location: Path or URL of the table.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    log = join(literal_path(location), "_delta_log")
    reader = spark.read.schema("metaData struct<schemaString string>")
    for form, pattern in (("json", "*.json"), ("parquet", "*.checkpoint*.parquet")):
        entries = reader.format(form).load(join(log, pattern)).where("metaData IS NOT NULL")
        newest = entries.select("metaData.schemaString", F.col("_metadata.file_name").alias("file"))
        rows = newest.orderBy(F.desc("file")).limit(1).collect()
        if rows:
            return StructType.fromJson(json.loads(rows[0][0]))
    return StructType()
