"""All settings of a run of target-spark, as their types. No rules, no destinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.engine.engine import EngineSettings
from shared.maps.map_settings import NO_TRANSFORMS, TransformSettings
from shared.settings.batch_settings import BatchConfig, FailurePolicy, Strategy
from shared.settings.checking import Location
from shared.settings.kinds import (
    ANY_TEXT,
    FREE,
    PLACE,
    POSITIVE,
    SECRET_VALUES,
    SWITCH,
    TEXT,
    TEXTS,
    VALUES,
    Schema,
    at_least,
    group,
    one_of,
    schema_of,
    setting,
)
from shared.singer.run_summary import OpenLineageSettings, OpenTelemetrySettings
from shared.spark.conf import SparkSettings
from target_spark.core.differences import MOST_VANISHED, DryRun, Verification
from target_spark.core.load_plans import Backfill, Layout, SchemaContract, TableName

TYPE_CONFLICTS = ("fail", "suffix", "cast")
NAME_STYLES = ("keep", "clean", "lower", "upper", "snake")

FOLDER_NAME: Schema = {
    "type": "string",
    "pattern": r"^(?!\.+$)[^/\\]*$",
    "x-pattern-meaning": "a name without slashes",
}


@dataclass(frozen=True)
class LoadSettings:
    """Settings of tables that `streams` can override for some streams."""

    load_method: str = setting(
        one_of(("append-only", "upsert", "history", "overwrite")),
        "`append-only` adds rows; `upsert` replaces rows of the same key properties (Delta, "
        "Iceberg and databases); `history` adds a version for each change of a row (Delta and "
        "Iceberg); `overwrite` replaces the tables of the received streams at the "
        "end of the run.",
        default="append-only",
    )
    overwrite_unfinished: bool = setting(
        SWITCH,
        "With `overwrite`: replace a table also if the input does not show that its stream is "
        "complete: see `target-spark docs target-spark#complete-streams`.",
        default=False,
    )
    upsert_order_by: str | tuple[str, ...] = setting(
        {"type": ["string", "array"], "minLength": 1, "items": TEXT},
        "Column, or list of columns, by which `upsert` and `history` tell the newer of two rows of "
        "a key, also that of the table; equal ones by arrival. A missing value is the oldest. By "
        "default the row that arrives last is the newest.",
        default=[],
        examples=["updated_at", ["version", "updated_at"]],
    )
    hard_delete: bool | None = setting(
        SWITCH,
        "Remove rows instead of marking them in `_sdc_deleted_at`: those of older versions on "
        "ACTIVATE_VERSION and, with `upsert`, those whose record is marked, or whose key a KEYS "
        "message lacks. By default only tables of files lose older rows, once their source was "
        "loaded anew: see `target-spark docs target-spark#files-that-were-replaced`.",
    )
    max_deleted_share: float = setting(
        {"type": "number", "minimum": 0, "maximum": 1},
        "Greatest share of a table's rows that a KEYS message may delete, from 0 to 1. With more, "
        "the run ends and nothing is deleted: the source was probably not whole.",
        default=MOST_VANISHED,
        examples=[0.5],
    )
    partition_by: tuple[str, ...] = setting(
        TEXTS,
        "Columns by which tables are partitioned: files in folders (`country=DE/`), Delta, "
        "Iceberg. Iceberg also accepts transforms, and new rows of existing tables follow.",
        default=[],
        examples=[["country"], ["days(created_at)", "bucket(16, id)"]],
    )
    cluster_by: tuple[str, ...] = setting(
        TEXTS,
        "Columns by which rows are clustered: clustering in new Delta tables, the sort order of "
        "Iceberg tables, an index in databases.",
        default=[],
    )
    target_file_bytes: int | None = setting(
        at_least(1), "Target size of the data files of Delta and Iceberg tables, in bytes."
    )
    compact: bool = setting(
        SWITCH,
        "Rewrite small files of Delta and Iceberg tables after the run.",
        default=False,
    )
    table_properties: Mapping[str, str] = setting(
        VALUES, "Properties of new Delta and Iceberg tables.", default={}
    )
    max_errors: int | None = setting(
        at_least(0),
        "How many records of a stream a failure policy may reject in one run; with more, the "
        "stream fails. Unbounded if not set.",
        examples=[100],
    )
    max_error_share: float | None = setting(
        {"type": "number", "minimum": 0, "maximum": 1},
        "Greatest share of rejected records of a stream, from 0 to 1. It is checked from 1,000 "
        "records on, and at the end of the input.",
        examples=[0.01],
    )
    schema_contract: SchemaContract = group(
        SchemaContract,
        "What of the schema of tables may change: see `target-spark docs schema-evolution`.",
    )


@dataclass(frozen=True)
class ExpectSettings:
    """What a run must bring for a stream; checked at the end of the run."""

    min_rows: int | None = setting(at_least(1), "Least number of rows that the run commits.")
    max_null_share: Mapping[str, float] = setting(
        {"type": "object", "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1}},
        "Greatest share of nulls in columns, from 0 to 1. For formats whose parts are Parquet "
        "(Parquet, Delta, Iceberg).",
        default={},
        examples=[{"email": 0.1}],
    )
    fresh_within: Mapping[str, float] = setting(
        {"type": "object", "additionalProperties": POSITIVE},
        "Columns of times, and how old the newest of the run may be, in seconds; for the same "
        "formats.",
        default={},
        examples=[{"updated_at": 86400}],
    )
    no_rows_where: tuple[str, ...] = setting(
        TEXTS,
        "Conditions in Spark SQL over the columns of the table that no row may meet; checked "
        "before the run is published, with `write_audit_publish`.",
        default=[],
        examples=[["amount < 0", "currency IS NULL AND amount <> 0"]],
    )
    withhold_state: bool = setting(
        SWITCH,
        "Write STATE only at the end of the run, and not if an expectation does not hold.",
        default=False,
    )


@dataclass(frozen=True)
class _TableNames:
    """Settings that only `streams` has."""

    table: str = setting(
        FOLDER_NAME,
        "Name of the table; `{stream}` stands for the stream's name, `{schema}` and `{table}` for "
        "its parts before and after the last `-`.",
        unset="{stream}",
        minLength=1,
    )
    schema: str | None = setting(
        FOLDER_NAME, "Schema of the table, with the same placeholders as `table`.", minLength=1
    )
    key_properties: tuple[str, ...] | None = setting(
        TEXTS, "Key properties instead of those of the SCHEMA."
    )
    expect: Mapping[str, Any] = setting(
        schema_of(ExpectSettings),
        "What the run must bring; if it does not, the run ends with exit code 11.",
        default={},
    )


@dataclass(frozen=True)
class StreamSettings(LoadSettings, _TableNames):
    """Settings for the streams of a pattern; for one stream, with what follows from all settings.

    Attributes:
        name: The table of the stream.
        method: The load method of the run: comparisons and backfills overwrite.
        backfill: The range of the table that the run replaces; None for none.
    """

    name: TableName = field(default=TableName(""))
    method: str = ""
    backfill: Backfill | None = None
    layout: Layout = field(default_factory=Layout)


@dataclass(frozen=True)
class _Places:
    """Where the tables are."""

    path: str = setting(
        PLACE,
        "Folder or URL of the tables, each in a folder "
        "`<path>/[<default_target_schema>/]<table_prefix><stream>/`. Required for files; for Delta "
        "and Iceberg set this or `catalog`.",
        unset="",
        examples=["output/"],
    )
    format: str = setting(
        ANY_TEXT, "Format of the files or tables; `jdbc` for a database.", default="parquet"
    )
    catalog: str | None = setting(
        TEXT,
        "Spark catalog of the Delta or Iceberg tables, configured in `spark.conf`; set it instead "
        "of `path`.",
        examples=["lake"],
    )
    default_target_schema: str | None = setting(
        FOLDER_NAME,
        "Schema (namespace, database) of the tables; for tables by `path` a folder.",
        minLength=1,
    )
    table_prefix: str = setting(FOLDER_NAME, "Prefix for the name of every table.", default="")
    streams: Mapping[str, Mapping[str, Any]] = setting(
        {"type": "object", "additionalProperties": schema_of(StreamSettings)},
        "Settings for streams by name or pattern; if several patterns match, the last one with a "
        "setting wins.",
        default={},
        examples=[{"orders*": {"load_method": "upsert", "partition_by": ["country"]}}],
    )


@dataclass(frozen=True)
class MaintenanceSettings:
    """Upkeep of Delta and Iceberg tables."""

    after_run: bool = setting(
        SWITCH,
        "Maintain the tables of a run at its end; otherwise only `target-spark maintain` does.",
        default=False,
    )
    compact: bool = setting(SWITCH, "Rewrite small files.", default=True)
    expire: bool = setting(
        SWITCH,
        "Remove what nothing needs any more: snapshots of Iceberg and their files, files that no "
        "kept version of a Delta table has (VACUUM).",
        default=True,
    )
    remove_orphans: bool = setting(
        SWITCH,
        "Remove files that no snapshot of an Iceberg table has and that are older than "
        "`keep_days`, at least a day. VACUUM always does so for Delta.",
        default=False,
    )
    keep_days: float = setting(
        POSITIVE,
        "To each moment of these last days `target-spark rewind` can return. Longer than any query "
        "and run takes; for Delta shorter than `delta.deletedFileRetentionDuration`, a week by "
        "default.",
        default=5,
    )
    keep_for_readers: tuple[str, ...] = setting(
        TEXTS,
        "State files of taps that read these tables by LOG_BASED, as paths or URLs: what their "
        "bookmarks go on from stays.",
        default=[],
        examples=[["/var/lib/singer/lake-to-crm.state.json"]],
    )


@dataclass(frozen=True)
class TableSettings(LoadSettings, _Places):
    """Settings that concern tables; dataclasses have the fields of the last base first."""

    type_conflicts: str = setting(
        one_of(TYPE_CONFLICTS),
        "What to do if a column's type changes and cannot be widened: `fail`, add a column whose "
        "name ends in the type (`suffix`), or change to text (`cast`). For Delta, Iceberg and "
        "databases.",
        default="fail",
    )
    column_names: str = setting(
        one_of(NAME_STYLES),
        "How column names are changed in Delta, Iceberg and databases: `keep` changes only what "
        "the format does not allow; `clean` keeps letters, digits and `_`; `lower`, `upper` and "
        "`snake` change the case, too.",
        default="keep",
    )
    denormalized: bool = setting(
        SWITCH,
        "`true`: a column for each property. `false`: the whole record in one column `data` "
        "(VARIANT or JSON), plus the key properties. For Delta, Iceberg and databases.",
        default=True,
    )
    generate_view: bool = setting(
        SWITCH,
        "With `denormalized: false`: create a view `<table>_view` with a typed column for each "
        "property.",
        default=False,
    )
    adopt_files: bool = setting(
        SWITCH,
        "Use Parquet files of BATCH messages as table files if nothing in them needs to change: "
        "see `target-spark docs batch-files#adopted-files`.",
        default=True,
    )
    write_audit_publish: bool = setting(
        SWITCH,
        "Keep back the rows of a run, on a branch or in a copy of each table, check what `expect` "
        "asks for, and publish them in one step for each table; only then STATE goes out: see "
        "`target-spark docs operate#audit-before-publish`.",
        default=False,
    )
    maintenance: MaintenanceSettings = group(
        MaintenanceSettings,
        "Upkeep of Delta and Iceberg tables: see `target-spark docs operate#maintenance`.",
    )


MIB = 1024 * 1024
LOAD, DISCARD = "load", "discard"
ALLOW, WAIT, FAIL = POLICIES = ("allow", "wait", "fail")
"""What a run does while another one loads the same stream."""


@dataclass(frozen=True)
class StagingSettings:
    """Disk space for lines of standard input until Spark reads them."""

    root: str | None = setting(
        PLACE,
        "Folder; by default the system's temporary folder. With a cluster, a folder that all "
        "executors share, or a URL that they reach, such as `s3://bucket/staging`.",
    )
    file_bytes: int = setting(
        at_least(1),
        "Size at which a staged file is passed to Spark, in bytes; to threads, half of it, 64 MiB "
        "at most.",
        default=256 * MIB,
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
    strategy_paths: Mapping[str, Location] = field(default_factory=dict)
    failure: FailurePolicy = field(default_factory=FailurePolicy)
    transforms: TransformSettings = NO_TRANSFORMS
    backfill: Backfill | None = None
    verification: Verification | None = None
    dry_run: DryRun | None = None
    strict_end: bool = False

    @property
    def operates(self) -> bool:
        """Whether a run does more than load: compares, audits or maintains tables."""
        compacts = self.compact or any(own.get("compact") for own in self.streams.values())
        audits, maintains = self.write_audit_publish, self.maintenance.after_run
        return bool(self.verification or audits or maintains or compacts)
