"""Completion of command lines in shells: Click's, with commands beside a program's own options."""

from __future__ import annotations

from collections.abc import Mapping

import click
from click.shell_completion import CompletionItem, get_completion_class


def completion(
    instruction: str, name: str, command: click.Command, others: Mapping[str, click.Command]
) -> str:
    """Return what a shell asks for by the variable `_<PROGRAM>_COMPLETE`.

    Args:
        instruction: Value of the variable: `bash_source`, `zsh_complete` and the like.
        name: Name of the program.
        command: What runs without the name of another command.
        others: The other commands by name, which comes first on the command line.

    Returns:
        The script for the shell, or the completions.

    Raises:
        click.UsageError: The instruction is not known.
    """
    shell, _, wanted = instruction.partition("_")
    made = get_completion_class(shell)
    if made is None or wanted not in {"source", "complete"}:
        raise click.UsageError(f"'{instruction}' is not bash_source, zsh_source or fish_source.")
    complete = made(command, {}, name, f"_{name}_COMPLETE".replace("-", "_").upper())
    if wanted == "source":
        return complete.source()
    args, incomplete = complete.get_completion_args()
    if args and args[0] in others:
        complete.cli = others[args[0]]
        found = complete.get_completions(args[1:], incomplete)
    else:
        found = complete.get_completions(args, incomplete)
        fitting = [other for other in others if not args and other.startswith(incomplete)]
        found += [CompletionItem(other, help=_about(others[other])) for other in fitting]
    return "\n".join(map(complete.format_completion, found))


def _about(command: click.Command) -> str:
    return command.get_short_help_str()
