"""A run that reads, checks and converts everything, and loads nothing."""

from __future__ import annotations

import logging
import os
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.run_summary import RunSummary
from shared.singer.stdout import MessageOutput
from target_spark.core.dry_run_report import DryRun
from target_spark.runtime.run import run

if TYPE_CHECKING:
    from target_spark.run_settings import TargetConfig

_log = logging.getLogger(__name__)


def dry_run(config: TargetConfig, input_fd: int, summary: RunSummary | None = None) -> None:
    """Log what a run would do to each table, one line for each.

    Records that do not fit count as in a run, but no dead letters are written; STATE is not
    emitted, and files of BATCH messages stay.

    Args:
        config: The settings of the run.
        input_fd: Descriptor of the messages.
        summary: Collects the counts.

    Raises:
        SingerSparkError: What would end the run; see `run`.
    """
    found, counted = DryRun(), summary or RunSummary("target-spark")
    counted.mark_dry()
    failure = config.failure
    if failure.policy == "SendToDLQ":
        failure = replace(failure, policy="LogAndContinue", dead_letter_path=None)
    dry = replace(config, dry_run=found, failure=failure, write_audit_publish=False)
    with closing(MessageOutput(os.open(os.devnull, os.O_WRONLY))) as nowhere:
        try:
            run(dry, input_fd, nowhere, counted)
        finally:
            for line in found.lines({name: counted.of_table(name) for name in found.tables}):
                _log.info("%s", line)
