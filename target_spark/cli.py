"""Command line of target-spark; nothing here imports Spark before it is needed."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from shared.cli import (
    CHOSEN_CODE,
    FILE,
    check_form,
    common_options,
    docs_command,
    environment,
    init_options,
    print_about,
    read_settings,
    run_main,
    with_options,
    write_draft,
)
from shared.encodings.encoding_format import declared_encodings
from shared.engine.engine import engine_of
from shared.errors import AlreadyRunningError, SettingsError, SourceError, Where
from shared.settings.database_urls import database_login
from shared.settings.texts import WIDTH
from shared.singer.platform import arrow_without_pandas, run_to_exit
from shared.singer.run_summary import RunSummary, observers_of, summarized
from shared.singer.signals import raise_on_sigterm
from shared.singer.stdout import claim_stdout
from shared.storage.urls import shown
from target_spark.config import PROGRAM, REGISTRY, target_config
from target_spark.core.load_plans import Backfill
from target_spark.destination_place import destination_draft, place_settings
from target_spark.destinations.destination_declaration import check_format
from target_spark.operate.trial_runs import dry_run, verify
from target_spark.receive.run import run
from target_spark.receive.state_file import kept_state
from target_spark.run_settings import TargetConfig

if TYPE_CHECKING:
    from target_spark.operate.table_maintenance import LakeTables

_logger = logging.getLogger(__name__)

_STDIN, _STDOUT = 0, 1

_input = click.option(
    "--input",
    "input_file",
    type=FILE,
    metavar="FILE",
    help="Read messages from a file, not stdin.",
)


def _range_options(what: str) -> Callable[[Any], Any]:
    """Return the options for a range of a table; `what` a run does with it."""
    return with_options(
        click.option("--backfill", "stream", metavar="STREAM", help=what),
        click.option("--column", help="Column of the range, for --backfill."),
        click.option("--from", "since", metavar="VALUE", help="Least value of the range."),
        click.option("--to", "until", metavar="VALUE", help="Value after the range."),
    )


@click.command(
    help=PROGRAM.description,
    epilog="`target-spark init --help`: a settings file to begin with. `target-spark history "
    "--help`, `target-spark rewind --help`: what tables were, with their STATE. `target-spark "
    "verify --help`: whether tables equal their source. `target-spark maintain --help`: small "
    "files, and files that nothing needs. `target-spark docs --help`: pages of the documentation.",
)
@common_options(PROGRAM)
@_input
@click.option("--state", type=FILE, metavar="FILE",
              help="Keep the last STATE in this file, which the tap reads by its --state; "
              "also written to standard output.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Log what a run would do to tables; load nothing.")
@click.option(
    "--overlap-code",
    type=CHOSEN_CODE,
    metavar="N",
    help="Exit code if another run loads a stream into its table, e.g. 99 (default: 13).",
)
@click.option(
    "--strict-end",
    is_flag=True,
    help="End with exit code 9 if rows come after the last STATE, as if the tap had died.",
)
@_range_options("Replace a range of this stream's table by the records of the run, in one step.")
def command(
    *,
    sources: tuple[str, ...],
    validate_config: bool,
    about: bool,
    form: str | None,
    place: str | None,
    summary: str | None,
    report: str | None,
    metrics_file: str | None,
    warn_drift: bool,
    empty_code: int | None,
    overlap_code: int | None,
    input_file: str | None,
    state: str | None,
    dry_run: bool,
    strict_end: bool,
    **backfill: str | None,
) -> int:
    """Run the command that the options select; return the exit code."""
    if about:
        declared_encodings().check()
        print_about(PROGRAM, form)
        return 0
    if form is not None:
        check_form(place, form)
    files = {"summary": summary, "report": report, "metrics": metrics_file}
    with (
        summarized(PROGRAM.name, **files, warn_drift=warn_drift) as collected,
        nullcontext() if overlap_code is None else _overlap_ends_with(overlap_code),
    ):
        variables = environment(sources, place)
        named = None if place is None else place_settings(place, form, variables)
        config = target_config(read_settings(PROGRAM, sources, named))
        chosen = backfill_of(config.format, **backfill)
        config = replace(config, backfill=chosen, strict_end=strict_end)
        place = shown(config.path) if config.path else config.catalog
        letters = config.failure.dead_letter_path
        kept = {"dead_letters": shown(letters)} if letters else {}
        collected.describe(destination={"format": config.format, "place": place, **kept})
        if validate_config:
            into = f" into {place}" if place else ""
            _logger.info("the settings are valid: %s%s", config.format, into)
            return 0
        raise_on_sigterm()
        if not dry_run:
            receivers = config.openlineage, config.opentelemetry
            facts = collected.as_dict
            if observers := observers_of(PROGRAM.name, *receivers, os.environ, facts):
                collected.observe(observers)
        with nullcontext(_STDIN) if input_file is None else _opened(input_file) as input_fd:
            _run(config, input_fd, collected, state, dry=dry_run)
        collected.choose_exit_code(empty_code)
        return collected.exit_code


@contextmanager
def _overlap_ends_with(code: int) -> Iterator[None]:
    """Give the error about another run an exit code of the user's choice."""
    try:
        yield
    except AlreadyRunningError as error:
        error.exit_code = code
        raise


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """Yield the descriptor of the file of `--input`; raise SourceError if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        os.read(fd, 0)
    except OSError as error:
        raise SourceError(
            f"cannot be read ({error.strerror})", where=Where(file=path), hint="see --input"
        ) from None
    try:
        yield fd
    finally:
        os.close(fd)


def backfill_of(
    form: str, stream: str | None, column: str | None, since: str | None, until: str | None
) -> Backfill | None:
    """Return the range that the options name; None for none.

    Raises:
        SettingsError: The options are not complete, or the format cannot replace a range.
    """
    if stream is None and (column, since, until) == (None, None, None):
        return None
    if stream is None or column is None or since is None or until is None:
        raise SettingsError(
            "a backfill needs four options", hint="give --backfill, --column, --from and --to"
        )
    cannot = "the format '{}' cannot replace a range of a table"
    check_format(form, REGISTRY.able("backfill"), cannot, "--backfill")
    return Backfill(stream, column, since, until)


def _run(
    config: TargetConfig, input_fd: int, summary: RunSummary, state: str | None, *, dry: bool
) -> None:
    # A person has the file, and no use for lines of STATE.
    is_silent = state is not None and os.isatty(_STDOUT)
    output = claim_stdout(os.devnull if is_silent else None)
    arrow_without_pandas()
    if dry:
        dry_run(config, input_fd, summary)
        return
    with nullcontext() if state is None else kept_state(state, input_fd) as state_file:
        run(config, input_fd, output, summary, state_file)


_config = click.option(
    "--config",
    "sources",
    multiple=True,
    type=FILE,
    metavar="FILE|ENV",
    help="Settings of the loads; see `target-spark --help`.",
)


@click.command("init")
@init_options
def init_command(*, place: str, form: str | None, output: str | None, force: bool) -> None:
    """Write a settings file with comments for loads into a path or URL.

    The format is that of the tables in a folder, if there are any. No password is written: it comes
    from the environment.
    """
    secret = " --config ENV" if database_login(place, {}, "") else ""
    usage = (f"tap-spark orders.csv | target-spark --config {{file}}{secret}",)
    draft = partial(destination_draft, place, form, os.environ)
    write_draft(PROGRAM, place, usage, draft, output, force=force)


@click.command("history")
@_config
@click.option("--table", "names", multiple=True, metavar="NAME", help="Only this; repeatable.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N",
              help="Most commits to list.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def history_command(
    *, sources: tuple[str, ...], names: tuple[str, ...], limit: int, as_json: bool
) -> None:
    """List the commits of all runs with their STATE, newest first.

    On a terminal, long names and bookmarks are cut to fit into 80 columns.
    """
    is_terminal = os.isatty(_STDOUT)
    output = claim_stdout()
    with _tables(sources) as tables:
        from target_spark.operate.rewind import history_lines  # noqa: PLC0415

        width = WIDTH if is_terminal else None
        for line in history_lines(tables, names, limit, as_json=as_json, width=width):
            output.write(f"{line}\n".encode())


@click.command("rewind")
@_config
@click.option("--to", required=True, metavar="RUN|TIME",
              help="A run, for its end, or a time in ISO 8601 (UTC without offset).")  # fmt: skip
@click.option("--table", "names", multiple=True, metavar="NAME", help="Only this; repeatable.")
@click.option("--dry-run", is_flag=True, help="Only check and report.")
@click.option("--force", is_flag=True, help="Consent to the losses that a rewind reports.")
def rewind_command(
    *, sources: tuple[str, ...], to: str, names: tuple[str, ...], **how: bool
) -> None:
    """Return tables to a moment, and write the STATE from which the tap goes on."""
    output = claim_stdout()
    with _tables(sources) as tables:
        from target_spark.operate.rewind import rewind  # noqa: PLC0415

        state = rewind(tables, to, names, **how)
        if state is not None:
            output.write(f"{state}\n".encode())


@click.command("maintain")
@_config
@click.option("--table", "names", multiple=True, metavar="NAME", help="Only this; repeatable.")
@click.option("--dry-run", is_flag=True, help="Only report what could be restored afterwards.")
def maintain_command(*, sources: tuple[str, ...], names: tuple[str, ...], dry_run: bool) -> None:
    """Compact tables and remove what nothing needs; write one line of JSON for each table.

    What is kept, and for how long, is in the setting `maintenance`.
    """
    output = claim_stdout()
    with _tables(sources, maintains=True) as tables:
        from target_spark.operate.rewind import maintain  # noqa: PLC0415

        for line in maintain(tables, names, dry_run=dry_run):
            output.write(f"{line}\n".encode())


@click.command("verify")
@_config
@_input
@click.option("--ranges", type=click.IntRange(1, 65536), default=256, show_default=True,
              metavar="N", help="Ranges of hashed keys that are compared.")  # fmt: skip
@click.option("--repair", is_flag=True, help="Change the rows that differ, in one commit.")
@click.option("--force", is_flag=True, help="Consent to the deletion of many rows by --repair.")
@click.option("--deletes", is_flag=True, help="Look for deleted rows alone, by their keys.")
@_range_options("Compare only a range of this stream's table, which the tap sends by --backfill.")
def verify_command(
    *,
    sources: tuple[str, ...],
    input_file: str | None,
    ranges: int,
    repair: bool,
    force: bool,
    deletes: bool,
    **backfill: str | None,
) -> None:
    """Compare tables with what a tap sends, and write one line of JSON for each table.

    The tap must send all rows, or all of a range: run it without a state. Nothing is loaded, and no
    STATE is written.
    """
    output = claim_stdout()
    config = target_config(read_settings(PROGRAM, sources))
    config = replace(config, backfill=backfill_of(config.format, **backfill))
    raise_on_sigterm()
    with nullcontext(_STDIN) if input_file is None else _opened(input_file) as fd:
        verify(config, fd, output, ranges=ranges, repair=repair, force=force, deletes=deletes)


@contextmanager
def _tables(sources: tuple[str, ...], *, maintains: bool = False) -> Iterator[LakeTables]:
    """Yield the tables of the settings, with Spark as long as they are used."""
    config = target_config(read_settings(PROGRAM, sources))
    from target_spark.operate import table_maintenance  # noqa: PLC0415

    table_maintenance.check_kept(config, maintains=maintains)
    raise_on_sigterm()
    engine = engine_of(config, config.spark, REGISTRY.get(config.format).needs)
    try:
        yield table_maintenance.LakeTables(config, engine.session("the history of tables"))
    finally:
        engine.stop()


COMMANDS = {
    command.name: command
    for command in (
        *(init_command, history_command, rewind_command, verify_command, maintain_command),
        docs_command,
    )
}


def main(args: Sequence[str] | None = None) -> int:
    """Run target-spark.

    Args:
        args: Arguments; None for those of the process.

    Returns:
        The exit code (see docs/errors.md).
    """
    return run_main(PROGRAM, command, args, list(COMMANDS.values()))


if __name__ == "__main__":
    sys.exit(run_to_exit(main))
