"""Common parts of both command lines: options, and the end of a run."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from shared.allocators import return_memory_early
from shared.errors import (
    DISK_FULL,
    ClosedPipeError,
    DestinationError,
    InvalidSettingsError,
    SettingsError,
    SingerSparkError,
    SourceError,
    SparkStartError,
    Where,
    error_text,
)
from shared.settings.about import ABOUT_FORMATS, Program, version
from shared.settings.loading import DOTENV, ENV, load_settings, merge, normalize, read_dotenv
from shared.settings.secrets import with_secrets
from shared.sigterm import forget_signals, raise_on_sigterm, received_error, signal_error
from shared.singer.logs import LEVELS, choose_level, is_debug, setup_logging
from shared.spark.submitted import current
from shared.transient_failures import settled

FILE = click.Path(readable=False)
"""Completed as a name of a file by shells; the programs check by themselves whether it is there."""

CHOSEN_CODE = click.IntRange(64, 125)
"""Exit codes that a user may choose: neither program nor a shell uses them."""

_DESCRIPTORS = 65_536

Command = TypeVar("Command", bound=Callable[..., Any])


def common_options(program: Program) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of both programs."""

    def show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            click.echo(f"{program.name} v{version()}")
            context.exit()

    def set_level(_context: click.Context, _: click.Parameter, level: str | None) -> None:
        if level is not None:
            choose_level(level)

    options = (
        click.option(
            "--config",
            "sources",
            multiple=True,
            type=FILE,
            metavar="FILE|ENV",
            help="Settings file (YAML, TOML or JSON), or ENV for environment variables "
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
            type=FILE,
            metavar="FILE",
            help="Write what the run moved, and how it ended, to a JSON file.",
        ),
        click.option(
            "--report",
            type=FILE,
            metavar="FILE",
            help="Write the same as an HTML page with a plot.",
        ),
        click.option(
            "--metrics-file",
            type=FILE,
            metavar="FILE",
            help="Write the same for Prometheus, in a folder of node exporter (*.prom).",
        ),
        click.option(
            "--warn-drift",
            is_flag=True,
            help="Warn if rows or nulls differ much from the last run in the --summary file.",
        ),
        click.option(
            "--empty-code",
            type=CHOSEN_CODE,
            metavar="N",
            help="Exit code if all went well and nothing was to do, e.g. 99 (default: 0).",
        ),
        click.option(
            "--log-level",
            type=click.Choice([name for name in LEVELS if name != "warn"]),
            is_eager=True,
            expose_value=False,
            callback=set_level,
            help="Least level of log lines (default: LOGLEVEL, or info).",
        ),
        click.option(
            "--quiet",
            flag_value="warning",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=set_level,
            help="Log only warnings and errors; no progress and no summary on a terminal.",
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
        place = click.argument("place", metavar="[PATH|URL]", required=False, type=FILE)
        return place(command)

    return decorate


def init_options(command: Command) -> Command:
    """Add the options of the commands `init`, which write a settings file."""
    options = (
        click.argument("place", metavar="PATH|URL", type=FILE),
        click.option("--format", "form", metavar="NAME", help="Format, if it cannot be detected."),
        click.option(
            "-o",
            "--output",
            type=FILE,
            metavar="FILE",
            help="Write a new file, YAML or (by its ending) JSON, not to standard output.",
        ),
        click.option("--force", is_flag=True, help="Replace the file of --output."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def write_draft(
    program: Program,
    place: str,
    usage: Sequence[str],
    draft: Callable[[], Mapping[str, Any]],
    output: str | None,
    *,
    force: bool,
) -> None:
    """Write settings for a path or URL, as `init` does.

    Args:
        program: The program.
        place: The path or URL.
        usage: Command lines that use the file, which `{file}` stands for.
        draft: Returns the settings, with comments.
        output: The file; None for standard output.
        force: Replace a file that is there.

    Raises:
        SettingsError: The file is there.
        DestinationError: It cannot be written.
    """
    from shared.settings.config_text import check_new, config_text, write_config  # noqa: PLC0415
    from shared.settings.files import format_of  # noqa: PLC0415
    from shared.singer.stdout import claim_stdout  # noqa: PLC0415

    if output is not None:
        check_new(output, force=force)
    stdout = claim_stdout()
    raise_on_sigterm()
    file = shlex.quote(output or f"{program.name.partition('-')[0]}.yaml")
    commands = [command.format(file=file) for command in usage]
    head = (
        f"Settings of {program.name} for {place}",
        f"All settings: `{program.name} docs settings`; completion in editors: "
        f"`{program.name} docs settings-files`",
        *(f"  {command}" for command in commands),
    )
    form = "YAML" if output is None else format_of(Path(output))
    text = config_text(head, draft(), form)
    if output is None:
        stdout.write(text.encode())
        return
    write_config(output, text, force=force)
    logging.getLogger(program.name).info("wrote '%s'; next: %s", output, commands[0])


def _topics(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from shared.documentation import topics  # noqa: PLC0415

    return [name for name in topics() if name.startswith(incomplete)]


@click.command("docs")
@click.argument("topic", required=False, shell_complete=_topics)
def docs_command(topic: str | None) -> None:
    """Print a page of the documentation of this version; without TOPIC, list the pages.

    PAGE#HEADING prints a part of a page: s3#credentials.
    """
    from shared.documentation import page_text, topics  # noqa: PLC0415
    from shared.text_table import text_table  # noqa: PLC0415

    lines = text_table(list(topics().items()), None) if topic is None else [page_text(topic)]
    click.echo("\n".join(lines).rstrip("\n"))


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
        SettingsError: None are given, or they, or secrets that they refer to, cannot be read.
    """
    if place is None and not sources:
        raise SettingsError(
            "no settings given", hint="give --config FILE or --config ENV, or a path or URL"
        )
    given = sources if place is None or ENV in sources else (*sources, ENV)
    found = load_settings(program.schema, given, program.env_prefix, os.environ)
    merged = _with_submitted(program, merge(found, place or {}))
    return with_secrets(program.schema, merged, environment(given))


def _with_submitted(program: Program, settings: dict[str, Any]) -> dict[str, Any]:
    """Lay what spark-submit was given over settings, if it has started this process."""
    given = current()
    if given is None:
        return settings
    if settings.get("spark", {}).get("remote") is not None:
        raise SettingsError(
            "spark-submit has started Spark",
            where=Where(setting="spark.remote"),
            hint="leave the setting out, or start the program without spark-submit",
        )
    return merge(settings, normalize(program.schema, given.settings()))


def environment(sources: Sequence[str]) -> Mapping[str, str]:
    """Return the environment variables, with those of `.env` if the settings come from there, too.

    Args:
        sources: Of settings that have been read.
    """
    return {**read_dotenv(DOTENV), **os.environ} if ENV in sources else os.environ


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


def _raise_descriptor_limit() -> None:
    """Allow this process more open files; Java gets the same limit.

    The usual soft limit of 1,024 is for programs that call `select`.
    """
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, _DESCRIPTORS)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        with contextlib.suppress(ValueError, OSError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def run_main(
    program: Program,
    command: click.Command,
    args: Sequence[str] | None,
    others: Sequence[click.Command] = (),
) -> int:
    """Run a command and return its exit code, however it ends.

    Args:
        program: Names the log lines.
        command: The click command; its function returns an exit code, or None for 0.
        args: Arguments; None for those of the process.
        others: Commands to run instead if the first argument is their name.

    Returns:
        The exit code; errors have been logged, one line for each problem.
    """
    setup_logging(program.name, os.environ)
    forget_signals()
    return_memory_early(os.environ)
    _raise_descriptor_limit()
    known = {str(other.name): other for other in others}
    try:
        instruction = os.environ.get(f"_{program.env_prefix}COMPLETE")
        if instruction:
            return _complete(instruction, program, command, known)
        # Not `command.main`: it turns errors that the user did not cause into Abort.
        given, name = list(sys.argv[1:] if args is None else args), program.name
        if given and given[0] in known:
            command, given, name = known[given[0]], given[1:], f"{name} {given[0]}"
        with command.make_context(name, given) as context:
            return command.invoke(context) or 0
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BaseException as error:
        return report(error, logging.getLogger(program.name))


def _complete(
    instruction: str, program: Program, command: click.Command, others: Mapping[str, click.Command]
) -> int:
    from shared.completion import completion  # noqa: PLC0415

    found = completion(instruction, program.name, command, others)
    click.echo(found, nl=bool(found))
    return 0


def report(error: BaseException, logger: logging.Logger) -> int:
    """Log the error that ended a run and return its exit code.

    Args:
        error: The error.
        logger: Receives the lines at ERROR, and the traceback at DEBUG.
    """
    known = known_error(error)
    if known is None:
        hint = "" if is_debug() else " (set LOGLEVEL=debug for the traceback)"
        lines: Sequence[str] = (f"unexpected error: {error_text(error)}{hint}",)
    else:
        lines = known.problems if isinstance(known, InvalidSettingsError) else (str(known),)
    # If the reader has enough, as `head` has, nothing is wrong.
    level = logging.INFO if isinstance(known, ClosedPipeError) else logging.ERROR
    for line in lines:
        logger.log(level, "%s", line)
    logger.debug("traceback of the error above", exc_info=error)
    return SingerSparkError.exit_code if known is None else known.exit_code


def known_error(error: BaseException) -> SingerSparkError | None:
    """Return the documented error for an exception; None for an unexpected one.

    After a signal, an unexpected one, or that Spark has gone away or cannot read a source, is what
    the signal has done to a call of a library.
    """
    if isinstance(error, SingerSparkError):
        is_cut_off = isinstance(error, SparkStartError | SourceError)
        return (received_error() if is_cut_off else None) or settled(error)
    if isinstance(error, KeyboardInterrupt):
        return signal_error(signal.SIGINT)
    if (ended := received_error()) is not None:
        return ended
    if isinstance(error, BrokenPipeError):
        _forget_stdout()
        return ClosedPipeError("the reader of standard output has gone away")
    return _known_os_error(error) if isinstance(error, OSError) else None


def _known_os_error(error: OSError) -> SingerSparkError | None:
    if error.errno == errno.EBADF and error.filename is None:
        return DestinationError("standard output cannot be written (it is closed)")
    if error.errno in DISK_FULL:
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
