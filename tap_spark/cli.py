"""Command line of tap-spark; nothing here imports Spark before it is needed."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from shared.cli import common_options, print_about, raise_on_sigterm, read_settings, run_main
from shared.spark.server_record import DEFAULT_IDLE_MINUTES, DEFAULT_PORT, running_server
from shared.spark.spark_settings import SparkSettings
from tap_spark.config import PROGRAM, TapConfig, check_extensions, tap_config

_logger = logging.getLogger(__name__)


@click.command(
    help=PROGRAM.description,
    epilog="`tap-spark spark-server --help`: a Spark that stays, for frequent runs.",
)
@common_options(PROGRAM)
@click.option("--discover", is_flag=True, help="Write the catalog to standard output and exit.")
@click.option("--catalog", metavar="FILE", help="Catalog that selects streams and properties.")
@click.option("--state", metavar="FILE", help="State of the last run.")
@click.option(
    "--test",
    is_flag=False,
    flag_value="all",
    type=click.Choice(["all", "schema"]),
    help="Read one record of every stream (all), or only the schemas (schema).",
)
def command(
    *,
    sources: tuple[str, ...],
    validate_config: bool,
    about: bool,
    about_format: str,
    discover: bool,
    catalog: str | None,
    state: str | None,
    test: str | None,
) -> None:
    """Run the command that the options choose."""
    if about:
        check_extensions()
        print_about(PROGRAM, about_format)
        return
    if discover and test:
        raise click.UsageError("--discover and --test exclude each other.")
    config = tap_config(read_settings(PROGRAM, sources))
    if validate_config:
        _logger.info("the settings are valid: %s stream(s)", len(config.streams))
        return
    raise_on_sigterm()
    _run(config, discover=discover, catalog=catalog, state=state, test=test)


def _run(
    config: TapConfig, *, discover: bool, catalog: str | None, state: str | None, test: str | None
) -> None:
    from shared.singer.stdout import claim_stdout  # noqa: PLC0415

    output = claim_stdout()
    if discover:
        output.write(json.dumps(_discover(config), indent=2).encode() + b"\n")
        return
    from tap_spark.planning.catalog import load_catalog  # noqa: PLC0415
    from tap_spark.planning.replication import load_state  # noqa: PLC0415
    from tap_spark.sync.sync import run_sync, run_test  # noqa: PLC0415

    chosen = None if catalog is None else load_catalog(catalog)
    if test is not None:
        run_test(config, test, chosen, output)
        return
    run_sync(config, chosen, None if state is None else load_state(state), output)


def _discover(config: TapConfig) -> dict[str, Any]:
    from tap_spark.planning.discovery import discover  # noqa: PLC0415

    return discover(config)


@click.command("spark-server")
@click.argument("action", type=click.Choice(["start", "stop", "status"]))
@click.option("--master", default=SparkSettings.master, show_default=True, help="Spark's master.")
@click.option("--lake", "lakes", multiple=True, type=click.Choice(["delta", "iceberg"]),
              help="Format of tables that runs will read or write; repeatable.")  # fmt: skip
@click.option("--package", "packages", multiple=True, help="Maven coordinates; repeatable.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="For Spark; repeatable.")
@click.option("--port", type=int, default=DEFAULT_PORT, show_default=True)
@click.option("--idle-minutes", type=float, default=DEFAULT_IDLE_MINUTES, show_default=True,
              help="End the server if no program has used it for so long.")  # fmt: skip
def server_command(*, action: str, conf: tuple[str, ...], **plan: Any) -> None:
    """Keep a Spark Connect server on this machine, for runs with `spark.remote`."""
    from shared.spark.spark_server import ServerPlan, start_server, stop_server  # noqa: PLC0415

    if action == "start":
        pairs = dict(pair.partition("=")[::2] for pair in conf)
        click.echo(start_server(ServerPlan(**plan, conf=pairs), os.environ).url)
        return
    found = (stop_server if action == "stop" else running_server)(os.environ)
    click.echo("no server runs" if found is None else found.url)


def main(args: Sequence[str] | None = None) -> int:
    """Run tap-spark.

    Args:
        args: Arguments; None for those of the process.

    Returns:
        The exit code (see docs/errors.md).
    """
    given = list(sys.argv[1:] if args is None else args)
    if given[:1] == [server_command.name]:
        return run_main(PROGRAM, server_command, given[1:])
    return run_main(PROGRAM, command, given)


if __name__ == "__main__":
    sys.exit(main())
