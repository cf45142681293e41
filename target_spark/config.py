"""Settings of target-spark: their JSON Schema, the rules between them, and the typed result."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.batch_config import (
    is_batch_key,
    settings_properties,
    settings_rule,
    validate,
    without_invalid,
)
from shared.encodings.encoding_registry import check_encodings
from shared.maps.map_settings import PROPERTIES as TRANSFORMS
from shared.maps.map_settings import (
    TransformSettings,
    transform_problems,
    transform_settings,
)
from shared.settings.about import Program
from shared.settings.batch.types import (
    BatchConfig,
    FailurePolicy,
    FixedSize,
    LowLatency,
    Strategy,
    TimeWindow,
)
from shared.settings.checking import Problem, complete_settings, text_values
from shared.spark.packages import with_needs
from shared.spark.spark_settings import (
    SparkSettings,
    spark_problems,
    spark_schema,
    spark_settings,
)
from target_spark.destinations.destination_registry import Registry, read_registry
from target_spark.table_settings import (
    NAME,
    StreamRule,
    stream_rules,
    table_properties,
    table_rules,
)

__all__ = ["PROGRAM", "REGISTRY", "SETTINGS_SCHEMA", "TargetConfig", "target_config"]
MIB = 1024 * 1024

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StagingSettings:
    """Disk space for lines of standard input until Spark reads them.

    Attributes:
        root: Folder; None for the system's temporary folder.
        file_bytes: Size at which a staged file is closed and passed to Spark.
    """

    root: str | None = None
    file_bytes: int = 64 * MIB


@dataclass(frozen=True)
class ReplaySettings:
    """Handling of records that are replayed after a killed run.

    Attributes:
        detect: Skip those that the table provably has.
        max_segments: Most segments of a stream to keep for that.
    """

    detect: bool = True
    max_segments: int = 1000


@dataclass(frozen=True)
class TargetConfig:
    """All settings of a run.

    Attributes:
        path: Folder or URL of the tables; empty if they lie elsewhere.
        catalog: Spark catalog that holds the tables.
        block: The destination's own block of settings, as its declaration makes it.
        format: A key of the registry of destinations.
        load_method: What a run does to existing rows.
        default_target_schema: Schema of the tables; with `path` a folder.
        table_prefix: Prefix for the name of every table.
        streams: Settings for streams by pattern.
        partition_by: Columns or transforms.
        cluster_by: Columns.
        target_file_bytes: Size of data files.
        compact: Rewrite small files after the run.
        table_properties: Properties of new tables.
        type_conflicts: `fail`, `suffix` or `cast`.
        column_names: How names are made legal.
        denormalized: A column for each property, instead of one for the record.
        generate_view: Make a typed view over that one column.
        adopt_files: Use batch files as table files if nothing in them needs to change.
        add_record_metadata: Add the `_sdc_*` columns.
        validate_records: Check every record against its schema.
        batch_size_rows: Rows that close a batch; None for no bound by rows.
        batch_size_bytes: Staged bytes that close a batch.
        batch_wait_limit_seconds: Age that closes a batch.
        staging: Lines on their way to Spark.
        replays: Records that are replayed after a killed run.
        hard_delete: Remove rows instead of marking them as deleted.
        activate_version: Apply ACTIVATE_VERSION messages.
        options: Options of the writer.
        storage_options: Options of fsspec for `path` and the dead letters; may contain secrets.
        spark: How to start or reach Spark.
        batch_config: Settings of BATCH files; None if not set.
        strategy: When a stream is flushed; None for the three bounds above.
        failure: Handling of failed records and commits.
        transforms: Transforms of records before they are loaded.
    """

    path: str = ""
    format: str = "parquet"
    catalog: str | None = None
    block: Any = field(default=None, repr=False)
    load_method: str = "append-only"
    default_target_schema: str | None = None
    table_prefix: str = ""
    streams: tuple[StreamRule, ...] = ()
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    target_file_bytes: int | None = None
    compact: bool = False
    table_properties: Mapping[str, str] = field(default_factory=dict)
    type_conflicts: str = "fail"
    column_names: str = "keep"
    denormalized: bool = True
    generate_view: bool = False
    adopt_files: bool = True
    add_record_metadata: bool = True
    validate_records: bool = True
    batch_size_rows: int | None = None
    batch_size_bytes: int = 256 * MIB
    batch_wait_limit_seconds: float = 60.0
    staging: StagingSettings = field(default_factory=StagingSettings)
    replays: ReplaySettings = field(default_factory=ReplaySettings)
    hard_delete: bool = False
    activate_version: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    spark: SparkSettings = field(default_factory=lambda: SparkSettings(app_name="target-spark"))
    batch_config: BatchConfig | None = None
    strategy: Strategy | None = None
    failure: FailurePolicy = field(default_factory=FailurePolicy)
    transforms: TransformSettings = field(default_factory=TransformSettings)


_RUN: dict[str, Any] = {
    "add_record_metadata": {
        "type": "boolean",
        "default": True,
        "description": "Add the `_sdc_*` columns.",
    },
    "validate_records": {
        "type": "boolean",
        "default": True,
        "description": "Check every record against the schema of its stream.",
    },
    "batch_size_rows": {
        "type": "integer",
        "minimum": 1,
        "description": "Rows of a stream in one commit; unbounded if not set. Not with a "
        "`batch.strategy`.",
    },
    "batch_size_bytes": {
        "type": "integer",
        "minimum": 1,
        "default": 256 * MIB,
        "description": "Bytes of a stream, as received, in one commit. Not with a "
        "`batch.strategy`.",
    },
    "batch_wait_limit_seconds": {
        "type": "number",
        "exclusiveMinimum": 0,
        "default": 60,
        "description": "Longest time before the commit of received rows starts. Not with a "
        "`batch.strategy` that has its own time limit.",
    },
    "staging": {
        "type": "object",
        "additionalProperties": False,
        "description": "Disk space for received lines until Spark reads them.",
        "properties": {
            "root": {
                **NAME,
                "description": "Folder; by default the system's temporary folder. With a cluster, "
                "a folder that all executors share.",
            },
            "file_bytes": {
                "type": "integer",
                "minimum": 1,
                "default": 64 * MIB,
                "description": "Size at which a staged file is passed to Spark, in bytes.",
            },
        },
    },
    "replays": {
        "type": "object",
        "additionalProperties": False,
        "description": "Detection of records of `append-only` streams that are replayed after a "
        "killed run; "
        "see docs/guarantees.md.",
        "properties": {
            "detect": {
                "type": "boolean",
                "default": True,
                "description": "Skip replayed records if the table provably has them already "
                "(Delta, Iceberg, PostgreSQL); otherwise load them again.",
            },
            "max_segments": {
                "type": "integer",
                "minimum": 1,
                "default": 1000,
                "description": "Most digests kept for each stream until a STATE covers the "
                "records: about one for each staged file, batch file and STATE. Above that, "
                "replayed records are loaded again.",
            },
        },
    },
    "activate_version": {
        "type": "boolean",
        "default": True,
        "description": "Apply ACTIVATE_VERSION messages; otherwise ignore them.",
    },
    "options": {
        "type": "object",
        "additionalProperties": {"type": ["string", "number", "boolean"], "secret": True},
        "default": {},
        "description": "Options of the writer for the format.",
        "examples": [{"compression": "zstd"}],
    },
    "storage_options": {
        "type": "object",
        "secret": True,
        # Not a schema: values keep their nesting, which fsspec's options need.
        "additionalProperties": True,
        "default": {},
        "description": "Options of fsspec for `path` and `failure.dead_letter_path`, such as "
        "`key`, `secret` or `endpoint_url`; Spark uses them, too, for Delta and Iceberg tables "
        "by `path` on S3; never shown.",
    },
}


def settings_schema(registry: Registry) -> dict[str, Any]:
    """Return the JSON Schema of the settings.

    Args:
        registry: The destinations.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of target-spark",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **table_properties(registry),
            **_RUN,
            "spark": spark_schema("target-spark"),
            **TRANSFORMS,
            **settings_properties("target"),
        },
    }


def target_config(settings: Mapping[str, Any]) -> TargetConfig:
    """Validate settings and turn them into their typed form.

    Args:
        settings: As `shared.settings.loading.load_settings` returns them, or written by hand.

    Raises:
        InvalidSettingsError: With every problem found.
    """
    check_encodings()
    values = complete_settings(PROGRAM.schema, settings, PROGRAM.rules)
    batch = validate({key: values.pop(key) for key in tuple(values) if is_batch_key(key)}, "target")
    for text in batch.check().warnings:
        _logger.warning(text)
    transforms = transform_settings(values)
    for name in TRANSFORMS:
        values.pop(name, None)
    declared = REGISTRY.get(values["format"])
    blocks = {name: values.pop(name, None) for name in REGISTRY.blocks}
    block = declared.typed(blocks[declared.name]) if declared.block is not None else None
    staging = values["staging"]
    for name in ("batch_size_rows", "batch_size_bytes"):
        if name in values:
            values[name] = int(values[name])
    return TargetConfig(
        **{
            **values,
            "batch_wait_limit_seconds": float(values["batch_wait_limit_seconds"]),
            "staging": StagingSettings(staging.get("root"), int(staging["file_bytes"])),
            "replays": ReplaySettings(
                values["replays"]["detect"], int(values["replays"]["max_segments"])
            ),
            "options": text_values(values["options"]),
            "block": block,
            "streams": stream_rules(values["streams"]),
            "partition_by": tuple(values["partition_by"]),
            "cluster_by": tuple(values["cluster_by"]),
            "table_properties": text_values(values["table_properties"]),
            "spark": with_needs(spark_settings(values["spark"]), declared.needs),
            "batch_config": batch.batch_config,
            "strategy": batch.strategy,
            "failure": batch.failure,
            "transforms": transforms,
        }
    )


def deletion_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the settings of ACTIVATE_VERSION together."""
    if settings.get("hard_delete") is True and settings.get("activate_version") is False:
        yield Problem(("hard_delete",), "has no effect if 'activate_version' is false")


def strategy_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Reject bounds that a strategy overrides."""
    given = {key: value for key, value in settings.items() if is_batch_key(key)}
    batch = validate(without_invalid(given), "target")
    if batch.strategy is None:
        return
    has_wait = isinstance(batch.strategy, FixedSize | TimeWindow | LowLatency)
    bounds = (
        "batch_size_rows",
        "batch_size_bytes",
        *(("batch_wait_limit_seconds",) if has_wait else ()),
    )
    for name in bounds:
        if name in settings:
            text = f"cannot be combined with the strategy {batch.strategy.name!r}"
            yield Problem((name,), f"{text}, which decides instead; remove one of the two")


def program(registry: Registry) -> Program:
    """Describe the program.

    Args:
        registry: The destinations.
    """
    return Program(
        name="target-spark",
        description="Singer target that loads streams into files, Delta and Iceberg tables and "
        "databases with Apache Spark.",
        schema=settings_schema(registry),
        rules=(
            *table_rules(registry),
            deletion_problems,
            spark_problems,
            transform_problems,
            settings_rule("target"),
            strategy_problems,
        ),
        capabilities=(
            "about",
            "batch",
            "stream-maps",
            "schema-flattening",
            "structured-logging",
            "validate-records",
            "activate-version",
            "target-schema",
            "hard-delete",
            "soft-delete",
        ),
    )


REGISTRY = read_registry(settings_schema(Registry())["properties"])
"""The destinations that are installed."""
PROGRAM = program(REGISTRY)
SETTINGS_SCHEMA = PROGRAM.schema
