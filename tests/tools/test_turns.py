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
    markers: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return self.nodeid.partition("::")[0]

    @property
    def name(self) -> str:
        return self.nodeid.rpartition("::")[2]

    def get_closest_marker(self, name: str) -> bool:
        return name in self.markers


@pytest.fixture
def conftest(pytestconfig: pytest.Config) -> Any:
    plugins = pytestconfig.pluginmanager.get_plugins()
    return next(p for p in plugins if getattr(p, "__file__", None) == str(CONFTEST))


def test_days_in_a_row_run_every_case_in_its_order(conftest: Any) -> None:
    whole = conftest.WHOLE_FILES[0]
    pure = [Case(f"a.py::test_pure[{n}]", ("costly",)) for n in range(3)]
    always = [
        *pure,
        Case("a.py::test_single", ("server",)),
        Case(f"{whole}::test_x[1]", ("pipe",)),
        Case(f"{whole}::test_x[2]", ("pipe",)),
    ]
    many = [Case(f"a.py::test_spark[{n}]", ("spark",)) for n in range(9)]
    suite = [Case(f"b.py::Test{name}::test_suite", ("pipe", "costly")) for name in "XYZ"]
    single = [Case(f"c.py::test_{name}", ("pipe", "costly")) for name in "abcd"]
    items = [*always[:2], *many[:4], *single, *always[2:], *many[4:], *suite]
    for first in range(20, 24):
        days = [conftest.cases_of_turn(items, first + day) for day in range(conftest.DAYS)]
        for day in days:
            assert day == sorted(day, key=items.index)
            assert [item for item in day if item in always] == [i for i in items if i in always]
            counts = [len([item for item in day if item in part]) for part in (many, suite, single)]
            assert counts in ([2, 1, 1], [3, 1, 1])
        assert {item for day in days for item in day} == {*items}
