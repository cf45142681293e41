"""Modules import in one direction, no two classes have one name, and names say something."""

from __future__ import annotations

import ast
import re

import pytest

from tools.structure import PACKAGES, ROOT, Structure, sources_of, structure_of

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def structure() -> Structure:
    return structure_of(sources_of(None))


def test_no_modules_import_each_other(structure: Structure) -> None:
    assert not structure.cycles, "move what they share to a module below both"


def test_no_two_classes_have_one_name(structure: Structure) -> None:
    assert not structure.classes, "keep one, or name each by what it is"


def test_all_modules_are_read(structure: Structure) -> None:
    assert {"shared.errors", "tap_spark.cli", "target_spark.core.pipeline"} <= set(structure.lines)


def test_only_the_engine_starts_spark_for_work_on_rows() -> None:
    starting = re.compile(r"\b(?:SessionStarter|start_session)\b")
    assert {name for name, text in sources_of(None).items() if starting.search(text)} == {
        "shared.engine.engine",
        "shared.spark.session",
        # Programs and suites of their own.
        "shared.spark.make_class_archive",
        "shared.spark.spark_server",
        "tap_spark.testing",
        "target_spark.testing",
    }


def test_shared_has_eight_packages_and_what_users_run_and_import() -> None:
    inside = [name.split(".") for name in sources_of(None) if name.startswith("shared.")]
    packages = {name for _, name, *rest in inside if rest}
    assert len(packages) <= 8, packages
    users = {"batch_config", "cli", "errors", "jobs", "testing"}
    assert {name for _, name, *_ in inside} - packages == users


def test_loading_names_no_operations() -> None:
    """By name, too; import-linter looks at the imports. Declarations name both."""
    own = ("target_spark.load.", "target_spark.convert.", "target_spark.receive.")
    naming = re.compile(r"target_spark\.operate\b")
    assert not [
        n for n, text in sources_of(None).items() if n.startswith(own) and naming.search(text)
    ]


def test_what_only_spark_can_do_is_caught_in_one_place() -> None:
    caught = re.compile(r"(?:except|suppress)\b[^\n]*NeedsSparkError")
    assert {name for name, text in sources_of(None).items() if caught.search(text)} == {
        "target_spark.destinations.lakes.lake_work"
    }


def test_types_that_an_older_spark_lacks_come_from_one_module() -> None:
    lacking = r"\b(?:Variant|CalendarInterval|Geometry|Geography|Datetime|Time)Type\b"
    for name, text in sources_of(None).items():
        code = re.sub(r"\"\"\".*?\"\"\"", "", text, flags=re.DOTALL)
        if name != "shared.formats.spark_types" and re.search(lacking, code):
            assert "from shared.formats.spark_types import T" in code, name
            assert "from pyspark.sql import types as T" not in code, name
            assert not re.search(rf"(?<!T\.){lacking}", code), name


@pytest.mark.parametrize(
    "back",
    [
        "from shared.a import A",
        "from shared import a",
        "import shared.a",
        "if TYPE_CHECKING:\n    from shared.a import A",
        "def f():\n    from shared.a import A",
    ],
)
def test_any_way_back_is_a_cycle(back: str) -> None:
    sources = {
        "shared": "",
        "shared.a": "from shared.b import B",
        "shared.b": "from shared.c import C",
        "shared.c": back,
        "shared.d": "from shared.a import A",
    }
    assert structure_of(sources).cycles == (("shared.a", "shared.b", "shared.c"),)


def test_classes_of_one_name_are_counted() -> None:
    sources = {"shared.a": "class A: ...", "tap_spark.b": "class A: ...\nclass B: ..."}
    assert structure_of(sources).classes == {"A": 2}


def test_own_modules_are_imported_at_the_top() -> None:
    """Late imports are for what `--help` must not load, and for optional features; only fewer."""
    late = [
        f"{name}:{node.lineno}"
        for name, text in sources_of(None).items()
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(PACKAGES)
    ]
    assert len(late) <= 63, late


EMPTY_WORDS = {"found", "known", "made", "given", "told", "way", "there"}


ROOTS = ["shared", "tap_spark", "target_spark", "benchmarks", "tests", "tools"]


@pytest.mark.parametrize("root", ROOTS)
def test_names_say_what_a_thing_is(root: str) -> None:
    attributes = ("id", "arg", "attr", "name", "asname")
    empty = [
        f"{path}:{getattr(node, 'lineno', 0)} {name}"
        for path in sorted((ROOT / root).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in (getattr(node, attribute, None) for attribute in attributes)
        if isinstance(name, str)
        and name.strip("_").lower() in EMPTY_WORDS
        # Hypothesis has the word.
        and (root, name) != ("tests", "given")
    ]
    assert not empty, "name the value"
