"""What the streams of a run share, and what threads and Spark do alike for a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from shared.engine.engine import Engine
from shared.errors import DISK_FULL, SourceError, Where
from shared.settings.batch_settings import BatchConfig
from shared.singer.run_summary import RunSummary
from shared.spark.spark_errors import explain_environment
from tap_spark.send.line_output import LineOutput, StateWriter
from tap_spark.send.stream_outputs import Outputs
from tap_spark.state.bookmarks import advance_positions
from tap_spark.state.stream_plans import StreamPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark.send.batch_plan import BatchStagingFolder
    from tap_spark.send.batch_writer import BatchWriter
    from tap_spark.send.spool import Spool
    from tap_spark.sources.source_failures import StreamFailures


@dataclass(frozen=True)
class Run:
    """What the streams of a run share.

    Attributes:
        spool: Returns where executors leave lines; None if they do not share a disk with this
            process. The first call creates it.
    """

    engine: Engine
    output: LineOutput
    spool: Callable[[], Spool | None] = lambda: None
    batch: BatchConfig | None = None
    staging: BatchStagingFolder | None = None
    outputs: Outputs = field(default_factory=Outputs)
    failures: StreamFailures | None = None
    limit: int | None = None
    spool_root: str | None = None
    summary: RunSummary = field(default_factory=partial(RunSummary, "tap-spark"))

    @property
    def spark(self) -> SparkSession:
        """Return the session; start it if nothing has needed it yet."""
        return self.engine.session()

    def batch_of(self, stream: str) -> BatchConfig | None:
        """Return how to write a stream as BATCH; None for RECORD."""
        return self.batch if self.batch is not None and self.batch.covers(stream) else None


def sends_all(run: Run, plan: StreamPlan) -> bool:
    """Return whether each row that is read becomes one record."""
    outputs = run.outputs.of(plan)
    return run.limit is None and len(outputs) == 1 and outputs[0].transform is None


@contextmanager
def reading(plan: StreamPlan) -> Iterator[None]:
    """Convert failures of the operating system while the driver reads a source."""
    try:
        yield
    except SourceError as error:
        error.name_stream(plan.stream)
        raise
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        file = None if error.filename is None else str(error.filename)
        where = Where(stream=plan.stream, file=file)
        reason = error.strerror or str(error)
        explained = explain_environment(error, where)
        raise explained or SourceError(f"cannot be read: {reason}", where=where) from error


def files_of(
    run: Run, batch: BatchConfig, plan: StreamPlan, writer: type[BatchWriter] | None = None
) -> BatchWriter:
    from tap_spark.send.batch_writer import BatchWriter  # noqa: PLC0415

    return (writer or BatchWriter)(
        lambda: run.spark, plan, run.output, batch=batch, spool=run.spool(), staging=run.staging
    )


def settle(plan: StreamPlan, bookmark: Mapping[str, Any] | None, state_writer: StateWriter) -> None:
    """Write the STATE of files that have been sent."""
    if bookmark is not None:
        state_writer.update(partial(advance_positions, plan, bookmark))
        state_writer.flush()
