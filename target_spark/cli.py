"""Command line of target-spark; nothing here imports Spark before it is needed."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

import click

from shared.cli import common_options, print_about, raise_on_sigterm, read_settings, run_main
from shared.encodings.encoding_registry import check_encodings
from shared.errors import SourceError, Where
from target_spark.config import PROGRAM, TargetConfig, target_config

_logger = logging.getLogger(__name__)

_STDIN = 0


@click.command(help=PROGRAM.description)
@common_options(PROGRAM)
@click.option("--input", "input_file", metavar="FILE", help="Read messages from a file, not stdin.")
def command(
    *,
    sources: tuple[str, ...],
    validate_config: bool,
    about: bool,
    about_format: str,
    input_file: str | None,
) -> None:
    """Run the command that the options select."""
    if about:
        check_encodings()
        print_about(PROGRAM, about_format)
        return
    config = target_config(read_settings(PROGRAM, sources))
    if validate_config:
        _logger.info("the settings are valid: %s into %s", config.format, config.path)
        return
    raise_on_sigterm()
    if input_file is None:
        _run(config, _STDIN)
        return
    input_fd = open_input(input_file)
    try:
        _run(config, input_fd)
    finally:
        os.close(input_fd)


def open_input(path: str) -> int:
    """Open the file that `--input` names.

    Raises:
        SourceError: It cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        os.read(fd, 0)
    except OSError as error:
        raise SourceError(
            f"cannot be read ({error.strerror})", where=Where(file=path), hint="see --input"
        ) from None
    return fd


def _run(config: TargetConfig, input_fd: int) -> None:
    from shared.singer.stdout import claim_stdout  # noqa: PLC0415

    output = claim_stdout()
    from target_spark.runtime.run import run  # noqa: PLC0415

    run(config, input_fd, output)


def main(args: Sequence[str] | None = None) -> int:
    """Run target-spark.

    Args:
        args: Arguments; None for those of the process.

    Returns:
        The exit code (see docs/errors.md).
    """
    return run_main(PROGRAM, command, args)


if __name__ == "__main__":
    sys.exit(main())
