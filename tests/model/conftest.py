"""Destinations for the tests that check them against a model, and by killing the target."""

from __future__ import annotations

from pathlib import Path

import pytest
from model_stores import DeltaStore, IcebergStore, PostgresStore, Store

STORES = ("delta", "iceberg", "postgresql")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each destination in turn."""
    if request.param == "delta":
        return DeltaStore(tmp_path)
    if request.param == "iceberg":
        return IcebergStore(tmp_path)
    return PostgresStore(request.getfixturevalue("postgres"))
