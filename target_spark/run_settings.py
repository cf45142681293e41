"""All settings of a run of target-spark, as their types. No rules, no destinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.engine.settings import EngineSettings
from shared.maps.map_settings import TransformSettings
from shared.settings.batch.batch_settings import BatchConfig, FailurePolicy, Strategy
from shared.settings.kinds import (
    FREE,
    POSITIVE,
    SECRET_VALUES,
    SWITCH,
    TEXT,
    at_least,
    group,
    one_of,
    setting,
)
from shared.spark.spark_settings import SparkSettings
from shared.telemetry.telemetry_settings import OpenLineageSettings, OpenTelemetrySettings
from target_spark.core.backfill import Backfill
from target_spark.core.dry_run_report import DryRun
from target_spark.core.verification import Verification
from target_spark.table_settings import TableSettings

MIB = 1024 * 1024
LOAD, DISCARD = "load", "discard"
ALLOW, WAIT, FAIL = POLICIES = ("allow", "wait", "fail")
"""What a run does while another one loads the same stream."""


@dataclass(frozen=True)
class StagingSettings:
    """Disk space for lines of standard input until Spark reads them."""

    root: str | None = setting(
        TEXT,
        "Folder; by default the system's temporary folder. With a cluster, a folder that all "
        "executors share, or a URL that they reach, such as `s3://bucket/staging`.",
    )
    file_bytes: int = setting(
        at_least(1), "Size at which a staged file is passed to Spark, in bytes.", default=64 * MIB
    )


@dataclass(frozen=True)
class ReplaySettings:
    """Handling of records that are replayed after a killed run."""

    detect: bool = setting(
        SWITCH,
        "Skip replayed records if the table provably has them already (Delta, Iceberg, "
        "PostgreSQL); otherwise load them again.",
        default=True,
    )
    max_segments: int = setting(
        at_least(1),
        "Most digests kept for each stream until a STATE covers the records: about one for each "
        "staged file, batch file and STATE. Above that, replayed records are loaded again.",
        default=1000,
    )


@dataclass(frozen=True)
class OverlapSettings:
    """What a run does while another one loads the same stream into the same table."""

    policy: str = setting(
        one_of(POLICIES),
        "`fail`: end with exit code 13 before anything of the stream is loaded. `wait`: wait until "
        "the other run ends. `allow`: load at the same time; only commits wait for each other.",
        default=FAIL,
    )
    wait_limit_seconds: float = setting(
        POSITIVE, "Longest wait for a table, with `wait`; then as with `fail`.", default=3600
    )
    expiry_seconds: int = setting(
        at_least(1),
        "Seconds without a sign of life after which a run on another machine counts as ended: S3, "
        "and databases that lost their client.",
        default=60,
    )


@dataclass(frozen=True)
class TargetConfig(TableSettings, EngineSettings):
    """All settings of a run.

    `block` is the destination's own block, as its declaration makes it. Without a `strategy` the
    three bounds `batch_size_rows`, `batch_size_bytes` and `batch_wait_limit_seconds` decide.
    """

    add_record_metadata: bool = setting(SWITCH, "Add the `_sdc_*` columns.", default=True)
    validate_records: bool = setting(
        SWITCH, "Check every record against the schema of its stream.", default=True
    )
    batch_size_rows: int | None = setting(
        at_least(1),
        "Rows of a stream in one commit; unbounded if not set. Not with a `batch.strategy`.",
    )
    batch_size_bytes: int = setting(
        at_least(1),
        "Bytes of a stream, as received, in one commit. Not with a `batch.strategy`.",
        default=256 * MIB,
    )
    batch_wait_limit_seconds: float = setting(
        POSITIVE,
        "Longest time before the commit of received rows starts. Not with a `batch.strategy` that "
        "has its own time limit.",
        default=60,
    )
    on_stream_failure: str = setting(
        one_of(("stop", "continue")),
        "What happens if a stream cannot be loaded: `stop` ends the run; `continue` loads the "
        "other streams, and the run then ends with exit code 9.",
        default="stop",
    )
    stall_limit_seconds: float | None = setting(
        POSITIVE,
        "Longest time without any input, finished conversion or commit. After half of it the run "
        "logs a warning, after all of it the run ends with exit code 12. Unbounded if not set.",
        examples=[1800],
    )
    heartbeat_seconds: int = setting(
        at_least(0),
        "Each time that there was no input, finished conversion or commit for so long, an INFO "
        "line says what the run waits for. 0 for no such lines.",
        default=60,
    )
    staging: StagingSettings = group(
        StagingSettings, "Disk space for received lines until Spark reads them."
    )
    replays: ReplaySettings = group(
        ReplaySettings,
        "Detection of records of `append-only` and `history` streams that are replayed after a "
        "killed run; see `target-spark docs guarantees`.",
    )
    rows_without_state: str = setting(
        one_of((LOAD, DISCARD)),
        "What happens to rows that come after the last STATE of an input, as if the tap had died, "
        "if replays of the stream cannot be detected: `load` them, or `discard` them, as the tap "
        "will send them again: see `target-spark docs guarantees#the-end-of-the-input`.",
        default=LOAD,
    )
    overlapping_runs: OverlapSettings = group(
        OverlapSettings,
        "Runs that load the same stream into the same table at once; see "
        "`target-spark docs operate#overlapping-runs`.",
    )
    activate_version: bool = setting(
        SWITCH, "Apply ACTIVATE_VERSION messages; otherwise ignore them.", default=True
    )
    options: Mapping[str, str] = setting(
        SECRET_VALUES,
        "Options of the writer for the format.",
        default={},
        examples=[{"compression": "zstd"}],
    )
    storage_options: Mapping[str, Any] = setting(
        FREE,
        "Options of fsspec for `path` and `failure.dead_letter_path`, such as `key`, `secret` or "
        "`endpoint_url`; Spark uses them, too, for Delta and Iceberg tables by `path` on S3; never "
        "shown.",
        default={},
        repr=False,
        secret=True,
    )
    spark: SparkSettings = group(
        SparkSettings, "How to start or reach Spark.", app_name="target-spark"
    )
    openlineage: OpenLineageSettings = group(
        OpenLineageSettings,
        "OpenLineage events about the runs; see `target-spark docs observability`.",
    )
    opentelemetry: OpenTelemetrySettings = group(
        OpenTelemetrySettings,
        "Spans and metrics of the runs; see `target-spark docs observability`.",
    )
    block: Any = field(default=None, repr=False)
    batch_config: BatchConfig | None = None
    strategy: Strategy | None = None
    failure: FailurePolicy = field(default_factory=FailurePolicy)
    transforms: TransformSettings = field(default_factory=TransformSettings)
    backfill: Backfill | None = None
    verification: Verification | None = None
    dry_run: DryRun | None = None
    strict_end: bool = False
