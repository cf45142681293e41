"""Products of cases of which a run takes a few."""

from __future__ import annotations

from collections.abc import Sequence
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


def _marked(value: Any) -> Any:
    """Return a value as `pytest.param` does."""
    return value if isinstance(value, type(pytest.param())) else pytest.param(value)
