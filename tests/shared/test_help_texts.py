"""Help texts of both programs and their commands: they fit into a terminal, and come at once."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

import shared.jobs
import tap_spark.cli
import target_spark.cli

MOST = 80
PROGRAMS = {
    "tap-spark": tap_spark.cli,
    "target-spark": target_spark.cli,
    "singer-spark": shared.jobs,
}


def commands() -> Iterator[tuple[str, click.Command]]:
    for name, module in PROGRAMS.items():
        yield name, module.command
        for other, command in module.COMMANDS.items():
            yield f"{name} {other}", command


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=str)
def test_help_fits_into_80_columns(
    name: str, command: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *args = name.split()
    assert PROGRAMS[program].main([*args, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"Usage: {name} [OPTIONS]")
    assert max(map(len, lines)) <= MOST


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=str)
def test_every_option_is_explained(name: str, command: click.Command) -> None:
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert options or command.name == "docs"
    assert [option.name for option in options if not option.help] == []


def test_each_program_names_its_commands() -> None:
    for module in PROGRAMS.values():
        epilog = " ".join((module.command.epilog or "").split())
        for name in module.COMMANDS:
            assert f" {name} --help`" in epilog
