"""Every page: its links lead somewhere, its commands parse, its settings are valid."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from doc_pages import (
    PAGES,
    ROOT,
    Block,
    anchors,
    blocks,
    is_local,
    links,
    name_of,
    prose,
    text_of,
)

import shared.jobs
import tap_spark.cli
import target_spark.cli
from shared.cli import page_text
from shared.encodings.encoding_format import DESTINATIONS, ENCODINGS, SOURCES
from shared.errors import SettingsError
from shared.settings.yaml_text import yaml_value
from tap_spark.config import tap_config
from target_spark.config import target_config

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.once

MOST_README_BYTES = 10_000
STREAM = {"name": "s", "format": "csv", "path": "data/*.csv"}
# Commands of the tutorials are run by tests of their own.
SHELL = [b for b in blocks("sh", "console") if b.page.name != "tutorials.md"]
MESSAGES = ("SCHEMA", "RECORD", "STATE", "BATCH", "KEYS", "ACTIVATE_VERSION")
OTHER_PROGRAMS = {"[", "cat", "cd", "chmod", "docker", "echo", "hdfs", "jq", "kubectl", "meltano",
                  "mv", "systemctl", "tail", "tar", "zip"}  # fmt: skip
INSTALLERS = {"pip", "pipx", "uv", "uvx"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
# Their settings are of packages: tests/extending checks them with the packages installed.
OF_PACKAGES = {"extending.md"}
SETTINGS_FILES = "running.md"
ALL_PAGES = pytest.mark.parametrize("page", PAGES, ids=name_of)


@ALL_PAGES
def test_links_lead_somewhere(page: Path) -> None:
    for link in filter(is_local, links(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(target), link


@ALL_PAGES
def test_headings_have_anchors_of_their_own(page: Path) -> None:
    actual = re.findall(r"^#+ .+$", prose(page), re.MULTILINE)
    if page.name != "CHANGELOG.md":
        assert len(actual) == len(anchors(page))


def test_the_front_page_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= MOST_README_BYTES


def test_headline_figures_are_measured_ones() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Figures\n")[1]
    figures = re.findall(r"\d[\d,.]*\d", section.split("\n## ")[0])
    measured = re.findall(r"\d[\d,.]*\d", text_of(ROOT / "benchmarks" / "README.md"))
    assert len(figures) > 10
    assert set(figures) <= set(measured)


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert set(PAGES) - {index} <= named


def test_pages_that_the_code_names_are_there() -> None:
    for package in ("shared", "tap_spark", "target_spark", "tests", "benchmarks"):
        for file in (ROOT / package).rglob("*.py"):
            for name in re.findall(r"\bdocs/[\w-]+\.md\b", file.read_text(encoding="utf-8")):
                assert (ROOT / name).exists(), (file, name)


def texts(file: Path) -> Iterator[str]:
    """Yield the texts of a module that are not docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def test_messages_name_pages_that_an_installed_user_can_print() -> None:
    files = [
        file
        for package in ("shared", "tap_spark", "target_spark")
        for file in (ROOT / package).rglob("*.py")
    ]
    of_checkouts = {ROOT / "tools/docs.py", ROOT / "shared/cli.py"}
    actual = [text for file in files if file not in of_checkouts for text in texts(file)]
    assert [text for text in actual if re.search(r"\bdocs/[\w-]+\.md", text)] == []
    named = [topic for text in actual for topic in re.findall(r" docs (\w[\w#-]*)`", text)]
    assert len(named) > 20
    for topic in named:
        assert page_text(topic)


def test_blocks_are_of_a_language_that_is_checked() -> None:
    existing = {
        "sh",
        "console",
        "json",
        "python",
        "toml",
        "mermaid",
        "bash",
        "ini",
        "sql",
        "yaml",
        "",
    }
    for page in PAGES:
        assert set(re.findall(r"^ *```(\w+)$", text_of(page), re.MULTILINE)) <= existing, page


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, name_of(block.page), "exec")


@pytest.mark.parametrize("block", blocks("bash"), ids=str)
def test_scripts_parse(block: Block) -> None:
    subprocess.run(["bash", "-n"], input=block.text.encode(), check=True)


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_yaml_parses(block: Block) -> None:
    assert yaml.safe_load(block.text)
    if block.page.name == SETTINGS_FILES:
        assert is_valid(yaml_value(block.text.encode()))


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_toml_declares_entry_points_or_settings(block: Block) -> None:
    actual = tomllib.loads(block.text)
    if block.page.name == SETTINGS_FILES:
        assert is_valid({**actual, "start_date": actual["start_date"].isoformat()})
        return
    [group] = actual["project"]["entry-points"]
    assert group in {SOURCES, ENCODINGS, DESTINATIONS}


def is_valid(settings: Any) -> bool:
    """Return whether one of the programs takes settings, or a part of them."""
    wholes = (settings, {"streams": [STREAM], **settings}, {"streams": [settings]})
    checks = [(tap_config, whole) for whole in wholes]
    checks += [(target_config, settings), (target_config, {"path": "out", **settings})]
    for check, whole in checks:
        try:
            check(whole)
        except SettingsError:
            continue
        return True
    return False


def values(text: str) -> Iterator[Any]:
    """Yield one JSON value, or one a line."""
    try:
        yield json.loads(text)
    except ValueError:
        yield from map(json.loads, text.strip().splitlines())


@pytest.mark.parametrize(
    "block", [block for block in blocks("json") if block.page.name not in OF_PACKAGES], ids=str
)
def test_settings_are_valid(block: Block) -> None:
    for value in values(block.text):
        assert value.get("type") in MESSAGES or is_valid(value)


def test_wrong_settings_are_found() -> None:
    assert not is_valid({"path": "x", "no_such_setting": 1})
    assert not is_valid({"format": "delta", "load_method": "merge"})
    assert not is_valid({"name": "s", "format": "csv", "path": "x", "replication_method": "LOG"})


@pytest.mark.parametrize("block", [block for block in SHELL if block.files], ids=str)
def test_files_that_are_written_are_valid(block: Block) -> None:
    for name, text in block.files.items():
        check = {"tap.json": tap_config, "target.json": target_config}[name]
        check(json.loads(text))


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_parse(block: Block) -> None:
    assert block.commands
    for line in block.commands:
        for words in simple_commands(line):
            check_command(words)


@ALL_PAGES
def test_modules_that_are_run_are_there(page: Path) -> None:
    for name in re.findall(r"python -m ([\w.]+)", text_of(page)):
        assert importlib.util.find_spec(name) is not None, name


def simple_commands(line: str) -> Iterator[list[str]]:
    """Yield the commands of a line, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    tokens = iter(lexer)
    for token in tokens:
        if token in {"|", "&&", ";"}:
            yield words
            words = []
        elif token in {">", ">>", "<"}:
            next(tokens)
        else:
            words.append(token)
    yield words


def check_command(words: list[str]) -> None:
    program, *args = words
    program = re.sub(r"^(\.venv|environment)/bin/", "", program)
    if program in PROGRAMS and args and args[0] in PROGRAMS[program].COMMANDS:
        PROGRAMS[program].COMMANDS[args[0]].make_context(program, args[1:])
    elif program in PROGRAMS:
        PROGRAMS[program].command.make_context(program, args)
    elif program == "spark-submit":
        [script] = [number for number, arg in enumerate(args) if arg.endswith("singer_spark.py")]
        check_command(args[script + 1 :])
    elif program in {"python", "python3"} and args[0] == "-m":
        assert importlib.util.find_spec(args[1]) is not None, words
    elif program == "pytest":
        assert all((ROOT / arg).exists() for arg in args if not arg.startswith("-")), words
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {arg for arg in args if "=" not in arg} <= set(targets), words
    elif program in INSTALLERS:
        asked = ",".join(re.findall(r"\[([\w,-]+)\]", " ".join(args)))
        assert set(filter(None, asked.split(","))) <= EXTRAS, words
        folders = [ROOT / arg.split("[")[0] for arg in args if arg.startswith(".")]
        assert all((folder / "pyproject.toml").exists() for folder in folders), words
    else:
        assert program in OTHER_PROGRAMS or re.match(r"(tap|target)-", program), words


PROGRAMS: dict[str, Any] = {
    "tap-spark": tap_spark.cli,
    "target-spark": target_spark.cli,
    "singer-spark": shared.jobs,
}


def test_wrong_commands_are_found() -> None:
    with pytest.raises(click.UsageError):
        check_command(["tap-spark", "--no-such-option"])
    with pytest.raises(AssertionError):
        check_command(["make", "no-such-target"])
    with pytest.raises(AssertionError):
        check_command(["pytest", "no_such_test.py"])
    with pytest.raises(AssertionError):
        check_command(["pip", "install", ".[no-such-extra]"])
    with pytest.raises(AssertionError):
        check_command(["uvx", "--from", "singer-spark[no-such-extra]", "tap-spark"])
    with pytest.raises(AssertionError):
        check_command(["pip", "install", "./no_such_folder"])


def test_all_is_every_extra_for_users() -> None:
    [line] = PROJECT["optional-dependencies"]["all"]
    assert set(re.findall(r"[\w-]+", line)) - {"singer-spark"} == EXTRAS - {"all", "dev", "testing"}


def test_every_extra_is_explained() -> None:
    extras = EXTRAS - {"dev"}
    running = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    table = running.split("## Extras\n")[1].split("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row.split("|")[1])} == extras
    front = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in front for name in extras)


def test_the_license_is_the_one_that_is_declared() -> None:
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_architecture_names_every_package() -> None:
    page = text_of(ROOT / "docs" / "architecture.md")
    named = re.findall(r"^\| `((?:shared|tap_spark|target_spark)\.\w+)` \|", page, re.MULTILINE)
    packages = (
        f"{folder.parent.name}.{folder.name}"
        for name in ("shared", "tap_spark", "target_spark")
        for folder in (ROOT / name).iterdir()
        if (folder / "__init__.py").exists()
    )
    assert sorted(named) == sorted(packages)
