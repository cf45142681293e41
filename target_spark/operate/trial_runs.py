"""Runs that load nothing: a dry run, and `verify`, which compares the rows with the tables."""

from __future__ import annotations

import json
import logging
import os
from contextlib import closing
from dataclasses import replace

from shared.errors import DifferenceError
from shared.singer.run_summary import RunSummary
from shared.singer.stdout import MessageOutput
from target_spark.config import REGISTRY
from target_spark.core.differences import DryRun, TableDifference, Verification
from target_spark.destinations.destination_declaration import check_format
from target_spark.receive.run import run
from target_spark.run_settings import TargetConfig

_log = logging.getLogger(__name__)


def dry_run(config: TargetConfig, input_fd: int, summary: RunSummary | None = None) -> None:
    """Log what a run would do to each table, one line for each.

    Records that do not fit count as in a run, but no dead letters are written; STATE is not
    emitted, and files of BATCH messages stay.

    Raises:
        SingerSparkError: What would end the run; see `run`.
    """
    result, counted = DryRun(), summary or RunSummary("target-spark")
    counted.mark_dry()
    failure = config.failure
    if failure.policy == "SendToDLQ":
        failure = replace(failure, policy="LogAndContinue", dead_letter_path=None)
    dry = replace(config, dry_run=result, failure=failure, write_audit_publish=False)
    with closing(MessageOutput(os.open(os.devnull, os.O_WRONLY))) as nowhere:
        try:
            run(dry, input_fd, nowhere, counted)
        finally:
            for line in result.lines({name: counted.of_table(name) for name in result.tables}):
                _log.info("%s", line)


def verify(
    config: TargetConfig,
    input_fd: int,
    output: MessageOutput,
    *,
    ranges: int,
    repair: bool = False,
    force: bool = False,
    deletes: bool = False,
) -> None:
    """Compare the tables with a whole Singer message stream; write what differs.

    The options are those of `Verification`.

    Args:
        input_fd: Descriptor of the messages.
        output: Takes one line of JSON for each table.

    Raises:
        DifferenceError: A table differs, and was not repaired.
        SettingsError: The format cannot be compared, or a stream's load method.
        SingerSparkError: See `run`.
    """
    check_compared(config, repair=repair)
    results: list[TableDifference] = []
    wanted = Verification(results.append, ranges, repair, force, deletes)
    with closing(MessageOutput(os.open(os.devnull, os.O_WRONLY))) as nowhere:
        try:
            # A repair is one commit, which is published at once.
            own = replace(config, verification=wanted, write_audit_publish=False)
            run(own, input_fd, nowhere)
        finally:
            for one in results:
                output.write(json.dumps(one.to_json()).encode() + b"\n")
    for one in results:
        _log.info("%s", summary_of(one))
    left = [f"{one.table} ({one.left})" for one in results if one.left]
    if left:
        hint = "" if repair else "--repair changes the rows that differ"
        if repair and config.backfill is not None and not force:
            hint = "vanished rows of a range stay without --force: they may only have left it"
        raise DifferenceError(f"tables differ from the source: {'; '.join(left)}", hint=hint)


def check_compared(config: TargetConfig, *, repair: bool) -> None:
    """Raise SettingsError if the tables of the format cannot be compared, or repaired."""
    needed = {"verify": "tables of the format '{}' cannot be verified"}
    if repair:
        needed["repair"] = "tables of the format '{}' cannot be repaired"
    for ability, cannot in needed.items():
        check_format(config.format, REGISTRY.able(ability), cannot, ability)


def summary_of(difference: TableDifference) -> str:
    """Return what was found in a table, in one line."""
    rows = f"{difference.source_rows} rows of the source, {difference.table_rows} of the table"
    kinds = (f"{count} {kind}" for kind in difference.repaired if (count := difference.count(kind)))
    repaired = ", ".join(kinds)
    what = [f"repaired: {repaired}"] if repaired else []
    what += [f"differs: {difference.left}"] if difference.left else []
    return f"stream '{difference.stream}', {difference.table}: {rows}; {'; '.join(what) or 'equal'}"
