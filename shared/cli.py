"""Common parts of both command lines: options, and the end of a run."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from shared.errors import (
    DISK_FULL,
    ClosedPipeError,
    DestinationError,
    InterruptedRunError,
    InvalidSettingsError,
    SettingsError,
    SingerSparkError,
    Where,
)
from shared.settings.about import ABOUT_FORMATS, Program, version
from shared.settings.loading import ENV, load_settings, merge
from shared.singer.logs import is_debug, setup_logging

Command = TypeVar("Command", bound=Callable[..., Any])


def common_options(program: Program) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of both programs."""

    def show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            click.echo(f"{program.name} v{version()}")
            context.exit()

    options = (
        click.option(
            "--config",
            "sources",
            multiple=True,
            metavar="FILE|ENV",
            help="Settings file, or ENV for environment variables "
            f"({program.env_prefix}*) and .env; repeatable: later files override earlier ones, and "
            "ENV overrides files.",
        ),
        click.option(
            "--validate-config",
            is_flag=True,
            help="Check the settings and exit, without starting Spark.",
        ),
        click.option("--about", is_flag=True, help="Describe the program and its settings."),
        click.option(
            "--format",
            "form",
            metavar="NAME",
            help=f"Style of --about ({', '.join(ABOUT_FORMATS)}), or format of the PATH.",
        ),
        click.option(
            "--summary",
            metavar="FILE",
            help="Write what the run moved, and how it ended, to a JSON file.",
        ),
        click.option(
            "--report", metavar="FILE", help="Write the same as an HTML page with a plot."
        ),
        click.option(
            "--warn-drift",
            is_flag=True,
            help="Warn if rows or nulls differ much from the last run in the --summary file.",
        ),
        click.option(
            "--version",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=show_version,
            help="Show the version and exit.",
        ),
    )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return click.argument("place", metavar="[PATH|URL]", required=False)(command)

    return decorate


def read_settings(
    program: Program, sources: Sequence[str], place: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Read and merge the settings that the command line names.

    Args:
        program: The program.
        sources: Files, and ENV for the environment, which also counts beside a path.
        place: Settings that stand for a path or URL of the command line, and override all others;
            None for none.

    Raises:
        SettingsError: None are given, or they cannot be read.
    """
    if place is None:
        if not sources:
            raise SettingsError(
                "no settings given", hint="give --config FILE or --config ENV, or a path or URL"
            )
        return load_settings(program.schema, sources, program.env_prefix, os.environ)
    given = sources if ENV in sources else (*sources, ENV)
    found = load_settings(program.schema, given, program.env_prefix, os.environ)
    return merge(found, place)


def print_about(program: Program, style: str | None) -> None:
    """Print the answer to `--about`.

    Raises:
        click.UsageError: The style is not known.
    """
    if style is not None and style not in ABOUT_FORMATS:
        raise click.UsageError(f"--about has the formats {', '.join(ABOUT_FORMATS)}.")
    click.echo(ABOUT_FORMATS[style or "text"](program))


def check_form(place: str | None, form: str | None) -> None:
    """Raise click.UsageError if a format is given without a path; styles are ignored."""
    if place is None and form not in {None, *ABOUT_FORMATS}:
        raise click.UsageError("--format is for --about, and for a PATH.")


def run_main(
    program: Program,
    command: click.Command,
    args: Sequence[str] | None,
    others: Sequence[click.Command] = (),
) -> int:
    """Run a command and return its exit code, however it ends.

    Args:
        program: Names the log lines.
        command: The click command.
        args: Arguments; None for those of the process.
        others: Commands to run instead if the first argument is their name.

    Returns:
        The exit code; errors have been logged, one line for each problem.
    """
    setup_logging(program.name, os.environ)
    try:
        # Not `command.main`: it turns errors that the user did not cause into Abort.
        given = list(sys.argv[1:] if args is None else args)
        for other in others:
            if given[:1] == [other.name]:
                command, given = other, given[1:]
                break
        with command.make_context(program.name, given) as context:
            command.invoke(context)
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BaseException as error:
        return report(error, logging.getLogger(program.name))
    return 0


def report(error: BaseException, logger: logging.Logger) -> int:
    """Log the error that ended a run and return its exit code.

    Args:
        error: The error.
        logger: Receives the lines at ERROR, and the traceback at DEBUG.
    """
    known = known_error(error)
    if known is None:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        hint = "" if is_debug() else " (set LOGLEVEL=debug for the traceback)"
        lines: Sequence[str] = (f"unexpected error: {text}{hint}",)
    else:
        lines = known.problems if isinstance(known, InvalidSettingsError) else (str(known),)
    for line in lines:
        logger.error("%s", line)
    logger.debug("traceback of the error above", exc_info=error)
    return SingerSparkError.exit_code if known is None else known.exit_code


def known_error(error: BaseException) -> SingerSparkError | None:
    """Return the documented error for an exception; None for an unexpected one."""
    if isinstance(error, SingerSparkError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return InterruptedRunError("interrupted; committed data stays")
    if isinstance(error, BrokenPipeError):
        _forget_stdout()
        return ClosedPipeError("the reader of standard output has gone away")
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        name = str(error.filename) if error.filename else None
        return DestinationError(
            f"{error.strerror}", where=Where(file=name), hint="free some disk space and run again"
        )
    return None


def _forget_stdout() -> None:
    # Otherwise Python flushes the rest at exit, and reports the error again.
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
