"""The bench of the tests with stream maps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mapped_bench import Bench


@pytest.fixture
def bench(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Both programs with Spark."""
    return Bench(spark, tmp_path, monkeypatch)


@pytest.fixture
def dry_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Both programs where nothing may ask for Spark."""
    return Bench(None, tmp_path, monkeypatch)


@pytest.fixture(params=["spark", "python"])
def either_bench(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Bench:
    """Both programs, with Spark; and where nothing may ask for it, so that Python maps."""
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    return Bench(spark, tmp_path, monkeypatch)
