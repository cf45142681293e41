"""The destinations of the Meltano SDK's tests of targets."""

from __future__ import annotations

from pathlib import Path

import pytest
from sdk_places import PLACES, Place, place_of


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Each destination in turn."""
    if request.param in {"delta", "iceberg"}:
        request.getfixturevalue("lake_spark")
    return place_of(request.param, tmp_path, request)
