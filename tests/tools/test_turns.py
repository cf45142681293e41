"""Turns of `.ci/run`: together they leave no case out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"


@dataclass(frozen=True)
class Case:
    """What turns ask of a test."""

    nodeid: str
    marker: str = ""

    @property
    def path(self) -> str:
        return self.nodeid.partition("::")[0]

    @property
    def name(self) -> str:
        return self.nodeid.rpartition("::")[2]

    def get_closest_marker(self, name: str) -> bool:
        return name == self.marker


def test_two_turns_run_every_case_in_its_order(pytestconfig: pytest.Config) -> None:
    plugins = pytestconfig.pluginmanager.get_plugins()
    conftest: Any = next(p for p in plugins if getattr(p, "__file__", None) == str(CONFTEST))
    whole = conftest.WHOLE_FILES[0]
    pure = [Case(f"a.py::test_pure[{n}]") for n in range(3)]
    single = [Case("a.py::test_single", "server")]
    always = [
        *pure,
        *single,
        Case(f"{whole}::test_x[1]", "pipe"),
        Case(f"{whole}::test_x[2]", "pipe"),
    ]
    halved = [Case(f"a.py::test_spark[{n}]", "spark") for n in range(5)]
    halved += [Case(f"b.py::Test{name}::test_suite", "pipe") for name in "XY"]
    items = [*always[:2], *halved[:4], *always[2:], *halved[4:]]
    even, odd = (conftest.cases_of_turn(items, turn) for turn in (20, 21))
    assert [item for item in items if item in even or item in odd] == items
    assert [item for item in even if item in odd] == [item for item in items if item in always]
    assert even == sorted(even, key=items.index)
    assert len(even) == len(always) + 4
