"""Command line of tap-spark; nothing here imports Spark before it is needed."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from shared.cli import (
    FILE,
    check_form,
    common_options,
    docs_command,
    environment,
    init_options,
    print_about,
    read_settings,
    run_main,
    write_draft,
)
from shared.encodings.encoding_format import declared_encodings
from shared.singer.platform import arrow_without_pandas, run_to_exit, see_current_folder
from shared.singer.run_summary import RunSummary, observers_of, summarized
from shared.singer.signals import heartbeats, raise_on_sigterm
from shared.singer.stdout import claim_stdout
from shared.spark.conf import SparkSettings
from shared.spark.connect import DEFAULT_IDLE_MINUTES, DEFAULT_PORT, running_server
from shared.spark.spark_server import ServerPlan, start_server, stop_server
from tap_spark.config import PROGRAM, TapConfig, tap_config
from tap_spark.place_argument import place_settings
from tap_spark.plan.catalog import catalog_lines, load_catalog
from tap_spark.plan.run_options import (
    CatalogRules,
    RunOptions,
    StreamRange,
    chosen_settings,
    ruled_catalog,
)
from tap_spark.sources.formats import DECLARED_FORMATS
from tap_spark.state.bookmarks import load_state
from tap_spark.stream_config import with_passwords

_logger = logging.getLogger(__name__)

_STDOUT = 1
_EXCLUDED = {
    "discover": ("test", "dry_run", "streams", "full_refresh", "limit", "backfill", "empty_code"),
    "test": ("dry_run", "full_refresh", "limit", "backfill", "empty_code"),
    "dry_run": ("empty_code",),
    "backfill": ("streams", "full_refresh"),
}
"""Options of the command line, and others that they exclude."""


@click.command(
    help=PROGRAM.description,
    epilog="`tap-spark init --help`: a settings file to begin with. "
    "`tap-spark preview --help`: the first rows as a table. "
    "`tap-spark spark-server --help`: a Spark that stays, for frequent runs. "
    "`tap-spark docs --help`: pages of the documentation.",
)
@common_options(PROGRAM)
@click.option("--discover", is_flag=True,
              help="Write the catalog (to a terminal: as a table) and exit.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True,
              help="Let --discover write JSON to a terminal, too.")  # fmt: skip
@click.option(
    "--catalog", type=FILE, metavar="FILE", help="Catalog that selects streams and properties."
)
@click.option("--state", type=FILE, metavar="FILE", help="State of the last run.")
@click.option(
    "--test",
    is_flag=False,
    flag_value="all",
    type=click.Choice(["all", "schema"]),
    help="Read one record of every stream (all), or only the schemas (schema).",
)
@click.option("--streams", multiple=True, metavar="PATTERN",
              help="Read only streams whose name matches; repeatable.")  # fmt: skip
@click.option("--select", multiple=True, metavar="PATTERN",
              help="Read only streams and columns (orders, orders.*) that match; !PATTERN leaves "
              "out (!*.ssn); repeatable, on top of the catalog.")  # fmt: skip
@click.option("--key", "keys", multiple=True, metavar="STREAM=COLUMN,...",
              help="Key properties of streams; repeatable.")  # fmt: skip
@click.option("--replication-key", "replication_keys", multiple=True, metavar="STREAM=COLUMN",
              help="Replication key of streams; they become INCREMENTAL. Repeatable.")  # fmt: skip
@click.option("--full-refresh", multiple=True, metavar="PATTERN",
              help="Read streams again, without their bookmarks; repeatable.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), metavar="N",
              help="Read at most so many records of each stream, and write no STATE.")  # fmt: skip
@click.option("--backfill", metavar="STREAM",
              help="Read only a range of this stream; its bookmark stays.")  # fmt: skip
@click.option("--from", "start", metavar="VALUE", help="Start of the range (replication key).")
@click.option("--to", "end", metavar="VALUE", help="End of the range, exclusive.")
@click.option("--dry-run", is_flag=True,
              help="Log what would be read of each stream, and read nothing.")  # fmt: skip
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
    discover: bool,
    as_json: bool,
    catalog: str | None,
    state: str | None,
    test: str | None,
    dry_run: bool,
    **chosen_options: Any,
) -> int:
    """Run the command that the options choose; return the exit code."""
    if about:
        DECLARED_FORMATS.check()
        declared_encodings().check()
        print_about(PROGRAM, form)
        return 0
    check_form(place, form)
    if as_json and not discover:
        raise click.UsageError("--json is for --discover.")
    what = {"discover": discover, "test": test, "dry_run": dry_run, "empty_code": empty_code}
    options = _run_options(what, **chosen_options)
    files = {"summary": summary, "report": report, "metrics": metrics_file}
    with summarized(PROGRAM.name, **files, warn_drift=warn_drift) as collected:
        variables = environment(sources, place)
        named = None if place is None else place_settings(place, form, variables)
        config = _config(sources, named)
        if validate_config:
            _logger.info("the settings are valid: %s stream(s)", len(config.streams))
            return 0
        raise_on_sigterm()
        if not (discover or test or dry_run):
            receivers = config.openlineage, config.opentelemetry
            observers = observers_of(PROGRAM.name, *receivers, os.environ, collected.as_dict)
            collected.observe(observers)
        chosen: dict[str, Any] = {"catalog": catalog, "state": state}
        chosen |= {"test": test, "dry": dry_run}
        _run(config, options, collected, discover=discover, as_json=as_json, **chosen)
        collected.choose_exit_code(empty_code)
        return collected.exit_code


def _config(sources: Sequence[str], named: Mapping[str, Any] | None) -> TapConfig:
    settings: Mapping[str, Any] = read_settings(PROGRAM, sources, named)
    if settings.get("connections"):
        settings = with_passwords(settings, environment(sources, named))
    config = tap_config(settings)
    if any(stream.is_python_source for stream in config.streams):
        # Before Java starts, whose workers see what this program sees.
        see_current_folder()
    return config


def _run_options(
    what: Mapping[str, Any],
    *,
    backfill: str | None,
    start: str | None,
    end: str | None,
    select: tuple[str, ...],
    keys: tuple[str, ...],
    replication_keys: tuple[str, ...],
    **options: Any,
) -> RunOptions:
    """Return the options of a run; reject those that have no effect together."""
    every = {**what, **options, "backfill": backfill}
    for option, others in _EXCLUDED.items():
        for other in others:
            if every[option] and every[other]:
                names = (f"--{name.replace('_', '-')}" for name in (option, other))
                raise click.UsageError("{} and {} exclude each other.".format(*names))
    options["rules"] = CatalogRules(select, keys, replication_keys)
    if backfill is not None and start is not None and end is not None:
        return RunOptions(**options, backfill=StreamRange(backfill, start, end))
    if (backfill, start, end) != (None, None, None):
        raise click.UsageError("--backfill, --from and --to must be given together.")
    return RunOptions(**options)


def _run(
    config: TapConfig,
    options: RunOptions,
    summary: RunSummary,
    *,
    discover: bool,
    as_json: bool,
    test: str | None,
    dry: bool,
    catalog: str | None,
    state: str | None,
) -> None:
    as_table = os.isatty(_STDOUT) and not as_json
    output = claim_stdout()
    arrow_without_pandas()

    def waits_for() -> str:
        return "the reader of standard output" if output.is_writing else "the source or Spark"

    with heartbeats(config.heartbeat_seconds, lambda: output.bytes_written, waits_for):
        if discover:
            discovered = _discover(config, options)
            text = _table(config, discovered) if as_table else json.dumps(discovered, indent=2)
            output.write(text.encode() + b"\n")
            return
        chosen = None if catalog is None else load_catalog(catalog)
        bookmarks = None if state is None or test is not None else load_state(state)
        if test is not None or dry:
            from tap_spark.send.trials import dry_run, run_test  # noqa: PLC0415

            if test is not None:
                run_test(config, test, chosen, output, options)
            else:
                dry_run(config, chosen, bookmarks, options)
            return
        from tap_spark.send.sync import run_sync  # noqa: PLC0415

        run_sync(config, chosen, bookmarks, output, options, summary)


def _table(config: TapConfig, catalog: Mapping[str, Any]) -> str:
    from tap_spark.plan.discovery import estimated_rows  # noqa: PLC0415

    hint = "`tap-spark ... --discover > catalog.json` writes the catalog, `--json` shows it."
    return "\n".join((*catalog_lines(catalog, estimated_rows(config, catalog)), "", hint))


def _discover(config: TapConfig, options: RunOptions) -> Mapping[str, Any]:
    from tap_spark.plan.discovery import discover  # noqa: PLC0415

    return ruled_catalog(discover(chosen_settings(config, options)), options.rules)


@click.command("init")
@init_options
def init_command(*, place: str, form: str | None, output: str | None, force: bool) -> None:
    """Write a settings file with comments for what a path or URL leads to.

    Files in a folder become streams, a JDBC URL becomes a connection with its tables. No password
    is written: it comes from the environment.
    """
    from tap_spark.plan.discovery import connected_tables  # noqa: PLC0415
    from tap_spark.source_draft import source_draft  # noqa: PLC0415

    usage = (
        "tap-spark --config {file} --discover",
        "tap-spark --config {file} | target-spark loaded/",
    )
    draft = partial(source_draft, place, form, os.environ, connected_tables)
    write_draft(PROGRAM, place, usage, draft, output, force=force)


@click.command("preview")
@click.argument("names", nargs=-1, metavar="[PATH|URL] [STREAM]...")
@click.option("--config", "sources", multiple=True, type=FILE, metavar="FILE|ENV",
              help="Settings; without them, the first argument is a path or URL.")  # fmt: skip
@click.option("--catalog", type=FILE, metavar="FILE", help="Catalog.")
@click.option("--format", "form", metavar="NAME", help="Format of the PATH.")
@click.option("--rows", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="N",
              help="Most rows of each stream.")  # fmt: skip
def preview_command(
    *,
    names: tuple[str, ...],
    sources: tuple[str, ...],
    catalog: str | None,
    form: str | None,
    rows: int,
) -> None:
    """Show the first rows of streams as tables, as a run would send them.

    STREAM is a pattern as for `--select` (orders, orders.id, !*.ssn). No STATE is read or written.
    """
    place = None
    if not sources and names:
        place, *others = names
        names = tuple(others)
    width = shutil.get_terminal_size().columns if os.isatty(_STDOUT) else None
    variables = environment(sources, place)
    named = None if place is None else place_settings(place, form, variables)
    config = _config(sources, named)
    raise_on_sigterm()
    output = claim_stdout()
    arrow_without_pandas()
    logging.getLogger().setLevel(max(logging.WARNING, logging.getLogger().level))
    from tap_spark.send.trials import preview  # noqa: PLC0415

    chosen = None if catalog is None else load_catalog(catalog)
    for line in preview(config, CatalogRules(names), rows, chosen, width):
        output.write(f"{line}\n".encode())


@click.command("spark-server")
@click.argument("action", type=click.Choice(["start", "stop", "status"]))
@click.option("--master", default=SparkSettings.master, show_default=True, help="Spark's master.")
@click.option("--lake", "lakes", multiple=True, type=click.Choice(["delta", "iceberg"]),
              help="Format of tables that runs will read or write; repeatable.")  # fmt: skip
@click.option("--package", "packages", multiple=True, help="Maven coordinates; repeatable.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="For Spark; repeatable.")
@click.option("--port", type=int, default=DEFAULT_PORT, show_default=True,
              help="Port on 127.0.0.1.")  # fmt: skip
@click.option("--idle-minutes", type=float, default=DEFAULT_IDLE_MINUTES, show_default=True,
              help="End the server if no program has used it for so long.")  # fmt: skip
def server_command(*, action: str, conf: tuple[str, ...], **plan: Any) -> None:
    """Keep a Spark Connect server on this machine, for runs with `spark.remote`."""
    if action == "start":
        pairs = dict(pair.partition("=")[::2] for pair in conf)
        click.echo(start_server(ServerPlan(**plan, conf=pairs), os.environ).url)
        return
    server = (stop_server if action == "stop" else running_server)(os.environ)
    click.echo("no server runs" if server is None else server.url)


COMMANDS = {
    command.name: command
    for command in (init_command, preview_command, server_command, docs_command)
}


def main(args: Sequence[str] | None = None) -> int:
    """Run tap-spark.

    Args:
        args: Arguments; None for those of the process.

    Returns:
        The exit code (see docs/errors.md).
    """
    return run_main(PROGRAM, command, args, list(COMMANDS.values()))


if __name__ == "__main__":
    sys.exit(run_to_exit(main))
