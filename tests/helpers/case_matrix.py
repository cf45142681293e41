"""Products of cases of which a run takes a few."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def matrix(*axes: Sequence[Any], rounds: int = 1) -> list[Any]:
    """Return the parameters of every case; those that `.ci/run` leaves out are marked `slow`.

    Args:
        axes: The values of each parameter.
        rounds: In how many combinations, at least, `.ci/run` has each value of the longest axis; it
            has each value of the others, too.
    """
    longest = range(max(map(len, axes)))
    quick = {
        tuple((number + turn * place) % len(axis) for place, axis in enumerate(axes))
        for turn in range(rounds)
        for number in longest
    }
    return [
        pytest.param(
            *(axis[n] for axis, n in zip(axes, case, strict=True)),
            marks=() if case in quick else pytest.mark.slow,
        )
        for case in product(*(range(len(axis)) for axis in axes))
    ]
