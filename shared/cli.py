"""Common parts of both command lines: options, completion, pages of the docs, the end of a run."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import resource
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from shared.errors import (
    ClosedPipeError,
    InvalidSettingsError,
    SettingsError,
    SingerSparkError,
    Where,
    error_text,
)
from shared.settings.about import ABOUT_FORMATS, Program, version
from shared.settings.checking import PASSWORD_IN_URL
from shared.settings.config_text import check_new, config_text
from shared.settings.loading import (
    DOTENV,
    ENV,
    load_settings,
    merge,
    normalize,
    read_dotenv,
    settings_format,
    with_secrets,
)
from shared.settings.texts import hide, text_table
from shared.singer.logs import LEVELS, choose_level, is_debug, setup_logging
from shared.singer.platform import return_memory_early
from shared.singer.run_summary import write_file
from shared.singer.signals import documented_error, forget_signals, raise_on_sigterm
from shared.singer.stdout import claim_stdout
from shared.spark.running_java import Submitted, current

FILE = click.Path(readable=False)
"""Completed as a name of a file by shells; the programs check by themselves whether it is there."""

CHOSEN_CODE = click.IntRange(64, 125)
"""Exit codes that a user may choose: neither program nor a shell uses them."""

_DESCRIPTORS = 65_536

Command = TypeVar("Command", bound=Callable[..., Any])
_Option = Callable[[Any], Any]


def common_options(program: Program) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of both programs."""
    place = click.argument("place", metavar="[PATH|URL]", required=False, type=FILE)
    options = (*_settings_options(program), *_RESULT_OPTIONS, *_log_options(program))
    return with_options(place, *options)


def with_options(*options: _Option) -> Callable[[Command], Command]:
    """Return a decorator that adds options, in their order."""

    def decorate(command: Command) -> Command:
        return reduce(lambda decorated, option: option(decorated), reversed(options), command)

    return decorate


def _settings_options(program: Program) -> tuple[_Option, ...]:
    return (
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
    )


_RESULT_OPTIONS = (
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
)


def _log_options(program: Program) -> tuple[_Option, ...]:
    def show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            click.echo(f"{program.name} v{version()}")
            context.exit()

    def set_level(_context: click.Context, _: click.Parameter, level: str | None) -> None:
        if level is not None:
            choose_level(level)

    return (
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


def init_options(command: Command) -> Command:
    """Add the options of the commands `init`, which write a settings file."""
    return with_options(
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
    )(command)


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
        usage: Command lines that use the file, which `{file}` stands for.
        draft: Returns the settings, with comments.
        output: The file; None for standard output.

    Raises:
        SettingsError: The file is there.
        DestinationError: It cannot be written.
    """
    if output is not None:
        check_new(output, force=force)
    stdout = claim_stdout()
    raise_on_sigterm()
    file = shlex.quote(output or f"{program.name.partition('-')[0]}.yaml")
    commands = [command.format(file=file) for command in usage]
    head = (
        f"Settings of {program.name} for {place}",
        f"All settings: `{program.name} docs settings`; completion in editors: "
        f"`{program.name} docs running#settings-files`",
        *(f"  {command}" for command in commands),
    )
    form = "YAML" if output is None else settings_format(Path(output))
    text = config_text(head, draft(), form)
    if output is None:
        stdout.write(text.encode())
        return
    check_new(output, force=force)
    write_file(text, output, "--output")
    logging.getLogger(program.name).info("wrote '%s'; next: %s", output, commands[0])


def _topics(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in topics() if name.startswith(incomplete)]


@click.command("docs")
@click.argument("topic", required=False, shell_complete=_topics)
def docs_command(topic: str | None) -> None:
    """Print a page of the documentation of this version; without TOPIC, list the pages.

    PAGE#HEADING prints a part of a page: s3#credentials.
    """
    lines = text_table(list(topics().items()), None) if topic is None else [page_text(topic)]
    click.echo("\n".join(lines).rstrip("\n"))


def read_settings(
    program: Program, sources: Sequence[str], place: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Read and merge the settings that the command line names.

    Args:
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
    places = sources if place is None or ENV in sources else (*sources, ENV)
    loaded = load_settings(program.schema, places, program.env_prefix, os.environ)
    merged, submission = merge(loaded, place or {}), current()
    if submission is not None:
        merged = _with_submitted(program, submission, merged)
    return with_secrets(program.schema, merged, environment(sources, place))


def _with_submitted(
    program: Program, submission: Submitted, settings: dict[str, Any]
) -> dict[str, Any]:
    """Lay what spark-submit was given over settings, as it has started this process."""
    if settings.get("spark", {}).get("remote") is not None:
        raise SettingsError(
            "spark-submit has started Spark",
            where=Where(setting="spark.remote"),
            hint="leave the setting out, or start the program without spark-submit",
        )
    return merge(settings, normalize(program.schema, submission.settings()))


def environment(sources: Sequence[str], place: object = None) -> Mapping[str, str]:
    """Return the environment variables, with those of `.env` if the settings come from there.

    Args:
        sources: As in `read_settings`.
        place: The path or URL of the command line, or its settings; None for none.

    Raises:
        SettingsError: `.env` cannot be read.
    """
    if place is None and ENV not in sources:
        return os.environ
    try:
        return {**read_dotenv(DOTENV), **os.environ}
    except ValueError as error:
        raise SettingsError(str(error)) from None


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
    """Run a command and return its exit code, however it ends; log its errors.

    Args:
        program: Names the log lines.
        command: The click command; its function returns an exit code, or None for 0.
        args: Arguments; None for those of the process.
        others: Commands to run instead if the first argument is their name.
    """
    setup_logging(program.name, os.environ)
    forget_signals()
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # every program would end with code 0
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # The caller may have blocked SIGTERM for itself, which must end the program all the same.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    return_memory_early(os.environ)
    _raise_descriptor_limit()
    commands = {str(other.name): other for other in others}
    try:
        instruction = os.environ.get(f"_{program.env_prefix}COMPLETE")
        if instruction:
            answer = completion(instruction, program.name, command, commands)
            click.echo(answer, nl=bool(answer))
            return 0
        # Not `command.main`: it turns errors that the user did not cause into Abort.
        arguments, name = list(sys.argv[1:] if args is None else args), program.name
        for argument in arguments:
            for password in PASSWORD_IN_URL.findall(argument):
                hide(password)
        if arguments and arguments[0] in commands:
            name = f"{name} {arguments[0]}"
            command = commands[arguments.pop(0)]
        with command.make_context(name, arguments) as context:
            return command.invoke(context) or 0
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.ClickException as error:
        with contextlib.suppress(OSError):  # A full disk does not change the exit code.
            error.show()
        return error.exit_code
    except BaseException as error:
        return report(error, logging.getLogger(program.name))


def report(error: BaseException, logger: logging.Logger) -> int:
    """Log the error that ended a run, with the traceback at DEBUG; return its exit code."""
    reported = documented_error(error)
    if reported is None:
        hint = "" if is_debug() else " (set LOGLEVEL=debug for the traceback)"
        lines: Sequence[str] = (f"unexpected error: {error_text(error)}{hint}",)
    elif isinstance(reported, InvalidSettingsError):
        lines = reported.problems
    else:
        lines = (str(reported),)
    # If the reader has enough, as `head` has, nothing is wrong.
    level = logging.INFO if isinstance(reported, ClosedPipeError) else logging.ERROR
    for line in lines:
        logger.log(level, "%s", line)
    logger.debug("traceback of the error above", exc_info=error)
    return SingerSparkError.exit_code if reported is None else reported.exit_code


def completion(
    instruction: str, name: str, command: click.Command, others: Mapping[str, click.Command]
) -> str:
    """Return the script or completions that a shell asks for by `_<PROGRAM>_COMPLETE`.

    Args:
        instruction: Value of the variable: `bash_source`, `zsh_complete` and the like.
        command: What runs without the name of another command.
        others: The other commands by name, which comes first on the command line.

    Raises:
        click.UsageError: The instruction is not known.
    """
    from click.shell_completion import CompletionItem, get_completion_class  # noqa: PLC0415

    shell, _, wanted = instruction.partition("_")
    shell_class = get_completion_class(shell)
    if shell_class is None or wanted not in {"source", "complete"}:
        raise click.UsageError(f"'{instruction}' is not bash_source, zsh_source or fish_source.")
    complete = shell_class(command, {}, name, f"_{name}_COMPLETE".replace("-", "_").upper())
    if wanted == "source":
        return complete.source()
    args, incomplete = complete.get_completion_args()
    if args and args[0] in others:
        complete.cli = others[args[0]]
        items = complete.get_completions(args[1:], incomplete)
    else:
        items = complete.get_completions(args, incomplete)
        fitting = [other for other in others if not args and other.startswith(incomplete)]
        items += [CompletionItem(o, help=others[o].get_short_help_str()) for o in fitting]
    return "\n".join(map(complete.format_completion, items))


_INSTALLED = Path(__file__).parent / "pages"
_PAGES = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parents[1] / "docs"
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_NEAR, _LIKENESS = 5, 0.5


def topics() -> dict[str, str]:
    """Return the name and title of each page."""
    pages = sorted(_PAGES.glob("*.md"))
    titled = ((page.stem, _HEADING.search(page.read_text("utf-8"))) for page in pages)
    return {name: title[2] if title else name for name, title in titled if name != "README"}


def page_text(topic: str) -> str:
    """Return a page, or the part of a page below a heading, as Markdown.

    Args:
        topic: E.g. `s3`, `docs/s3.md` or `s3#credentials`.

    Raises:
        SettingsError: There is no such page or heading; names what is near.
    """
    name, _, anchor = topic.removeprefix("docs/").partition("#")
    name = name.removesuffix(".md")
    if name not in topics():
        raise _unknown(name, list(topics()))
    text = (_PAGES / f"{name}.md").read_text("utf-8")
    text = re.sub(r"\A<!--.*?-->\s*", "", text, flags=re.DOTALL)
    return _section(text, name, anchor) if anchor else text


def _section(text: str, page: str, anchor: str) -> str:
    headings = list(_HEADING.finditer(text))
    slugs = [_slug(heading[2]) for heading in headings]
    if anchor not in slugs:
        raise _unknown(f"{page}#{anchor}", [f"{page}#{slug}" for slug in slugs])
    at = slugs.index(anchor)
    level = len(headings[at][1])
    after = (other.start() for other in headings[at + 1 :] if len(other[1]) <= level)
    return text[headings[at].start() : next(after, len(text))].rstrip() + "\n"


def _slug(heading: str) -> str:
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def _unknown(topic: str, candidates: list[str]) -> SettingsError:
    near = get_close_matches(topic, candidates, _NEAR, _LIKENESS)
    hint = f"near: {', '.join(near)}" if near else "`docs` without a topic lists them"
    return SettingsError(f"there is no page '{topic}'", hint=hint)
