"""Products of cases of which a run takes a few."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest


def matrix(*axes: Sequence[Any], rounds: int = 1) -> list[Any]:
    """Return the parameters of every case; those that `.ci/run` leaves out are marked `slow`.

    Args:
        axes: The values of each parameter; `pytest.param` gives one marks.
        rounds: In how many combinations, at least, `.ci/run` has each value of the longest axis; it
            has each value of the others, too.
    """
    longest = range(max(map(len, axes)))
    quick = {
        tuple((number + turn * place) % len(axis) for place, axis in enumerate(axes))
        for turn in range(rounds)
        for number in longest
    }
    listed = []
    for case in product(*(range(len(axis)) for axis in axes)):
        own = [_marked(axis[n]) for axis, n in zip(axes, case, strict=True)]
        marks = [*(mark for one in own for mark in one.marks)]
        marks += [] if case in quick else [pytest.mark.slow]
        listed.append(pytest.param(*(one.values[0] for one in own), marks=marks))
    return listed


def with_slow(
    name: str, quick: Iterable[Any], slow: Iterable[Any], *, indirect: bool = False
) -> pytest.MarkDecorator:
    """Parametrize a test by values of one kind, of which `.ci/run` has the quick ones.

    Args:
        name: The test's argument.
        quick: The values of `.ci/run`.
        slow: The others.
        indirect: Whether a fixture of the name takes the value.
    """
    left = [pytest.param(value, marks=pytest.mark.slow) for value in slow]
    return pytest.mark.parametrize(name, [*quick, *left], indirect=indirect)


def _marked(value: Any) -> Any:
    """Return a value as `pytest.param` does."""
    return value if isinstance(value, type(pytest.param())) else pytest.param(value)
