"""Settings of target-spark: their JSON Schema, the rules between them, and the typed result."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.about import Program
from shared.batch_config import (
    is_batch_key,
    settings_properties,
    settings_rule,
    validate,
    without_invalid,
)
from shared.batch_types import (
    BatchConfig,
    FailurePolicy,
    FixedSize,
    LowLatency,
    Strategy,
    TimeWindow,
)
from shared.encoding_registry import check_encodings
from shared.settings_check import Problem, complete_settings
from shared.spark_packages import LAKES, Need, with_needs
from shared.spark_settings import (
    SparkSettings,
    spark_problems,
    spark_schema,
    spark_settings,
    text_values,
)
from shared.transforms.settings import PROPERTIES as TRANSFORMS
from shared.transforms.settings import (
    TransformSettings,
    transform_problems,
    transform_settings,
)
from target_spark.table_settings import (
    FORMATS,
    NAME,
    PROPERTIES,
    JdbcSettings,
    StreamRule,
    jdbc_settings,
    method_problems,
    place_problems,
    stream_rules,
    view_problems,
)

__all__ = ["FORMATS", "PROGRAM", "SETTINGS_SCHEMA", "TargetConfig", "target_config"]
MIB = 1024 * 1024

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StagingSettings:
    """Where lines of standard input wait on disk before Spark reads them.

    Attributes:
        root: Folder; None for the system's temporary folder.
        file_bytes: Size at which a staged file is closed and handed to Spark.
    """

    root: str | None = None
    file_bytes: int = 64 * MIB


@dataclass(frozen=True)
class ReplaySettings:
    """How records are treated that come again after a killed run.

    Attributes:
        detect: Skip those that the table is shown to hold.
        max_segments: Segments of a stream that are kept for that.
    """

    detect: bool = True
    max_segments: int = 1000


@dataclass(frozen=True)
class TargetConfig:
    """All settings of a run.

    Attributes:
        path: Folder or URL that holds the tables; empty where they lie elsewhere.
        catalog: Spark catalog that holds the tables.
        jdbc: Database that holds the tables.
        format: A key of the registry of destinations.
        load_method: What a run does to rows that are there already.
        default_target_schema: Schema of the tables; with `path` a folder.
        table_prefix: Put before every table's name.
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
        adopt_files: Take batch files over where nothing in them needs to change.
        add_record_metadata: Add the `_sdc_*` columns.
        validate_records: Check every record against its schema.
        batch_size_rows: Rows that close a batch; None for no bound by rows.
        batch_size_bytes: Staged bytes that close a batch.
        batch_wait_limit_seconds: Age that closes a batch.
        staging: Lines on their way to Spark.
        replays: Records that come again after a killed run.
        hard_delete: Remove rows instead of marking them as deleted.
        activate_version: Honour ACTIVATE_VERSION messages.
        options: Options of the writer.
        storage_options: Passed to fsspec for `path` and the dead letters; may hold secrets.
        spark: How to start or reach Spark.
        batch_config: What concerns files of BATCH messages; None where not given.
        strategy: When a stream is flushed; None for the three bounds above.
        failure: What happens to records and commits that fail.
        transforms: What happens to records before they are loaded.
    """

    path: str = ""
    format: str = "parquet"
    catalog: str | None = None
    jdbc: JdbcSettings | None = None
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


SETTINGS_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Settings of target-spark",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **PROPERTIES,
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
            "description": "Rows of a stream that are committed together; no bound where not set. "
            "Not with a `batch.strategy`.",
        },
        "batch_size_bytes": {
            "type": "integer",
            "minimum": 1,
            "default": 256 * MIB,
            "description": "Bytes of a stream, as received, that are committed together. Not with "
            "a `batch.strategy`.",
        },
        "batch_wait_limit_seconds": {
            "type": "number",
            "exclusiveMinimum": 0,
            "default": 60,
            "description": "Longest time that received rows wait for their commit to start. Not "
            "with a `batch.strategy` that has a wait of its own.",
        },
        "staging": {
            "type": "object",
            "additionalProperties": False,
            "description": "Disk space for received lines on their way to Spark.",
            "properties": {
                "root": {
                    **NAME,
                    "description": "Folder; the system's temporary folder where not set. With a "
                    "cluster, one that all executors share.",
                },
                "file_bytes": {
                    "type": "integer",
                    "minimum": 1,
                    "default": 64 * MIB,
                    "description": "Bytes at which a staged file is handed to Spark.",
                },
            },
        },
        "replays": {
            "type": "object",
            "additionalProperties": False,
            "description": "Records of `append-only` streams that come again after a killed run; "
            "see docs/guarantees.md.",
            "properties": {
                "detect": {
                    "type": "boolean",
                    "default": True,
                    "description": "Skip records that the table is shown to hold already (Delta, "
                    "Iceberg, PostgreSQL); otherwise load them again.",
                },
                "max_segments": {
                    "type": "integer",
                    "minimum": 1,
                    "default": 1000,
                    "description": "Digests of each stream that are kept until a STATE covers the "
                    "records: about one for each staged file, batch file and STATE. With more, "
                    "records that come again are loaded again.",
                },
            },
        },
        "activate_version": {
            "type": "boolean",
            "default": True,
            "description": "Honour ACTIVATE_VERSION messages.",
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
            "description": "Passed to fsspec for `path` and `failure.dead_letter_path`, such as "
            "`key`, `secret` or `endpoint_url`; also to Spark, for Delta and Iceberg tables by "
            "`path` on S3; never shown.",
        },
        "spark": spark_schema("target-spark"),
        **TRANSFORMS,
        **settings_properties("target"),
    },
}


def target_config(settings: Mapping[str, Any]) -> TargetConfig:
    """Validate settings and turn them into their typed form.

    Args:
        settings: As `shared.settings.load_settings` gives them, or written by hand.

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
            "jdbc": jdbc_settings(values.get("jdbc")),
            "streams": stream_rules(values["streams"]),
            "partition_by": tuple(values["partition_by"]),
            "cluster_by": tuple(values["cluster_by"]),
            "table_properties": text_values(values["table_properties"]),
            "spark": with_needs(spark_settings(values["spark"]), _lakes(values["format"])),
            "batch_config": batch.batch_config,
            "strategy": batch.strategy,
            "failure": batch.failure,
            "transforms": transforms,
        }
    )


def _lakes(name: str) -> tuple[Need, ...]:
    return (LAKES[name],) if name in LAKES else ()


def deletion_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Cross-field rules of ACTIVATE_VERSION."""
    if settings.get("hard_delete") is True and settings.get("activate_version") is False:
        yield Problem(("hard_delete",), "has no effect where 'activate_version' is false")


def strategy_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check that no bound is given beside a strategy that decides in its place."""
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
            text = f"does not go with the strategy {batch.strategy.name!r}, which decides instead"
            yield Problem((name,), f"{text}; leave one of the two out")


PROGRAM = Program(
    name="target-spark",
    description="Singer target that loads streams into files, Delta and Iceberg tables and "
    "databases with Apache Spark.",
    schema=SETTINGS_SCHEMA,
    rules=(
        place_problems,
        method_problems,
        view_problems,
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
