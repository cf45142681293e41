"""Destinations for the tests that check them against a model, and by killing the target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_programs import ForkServer
from model_stores import DeltaStore, IcebergStore, ParquetStore, PostgresStore, S3Store, Store
from s3_servers import BUCKET, running

STORES = ("delta", "iceberg", "postgresql")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each destination in turn."""
    if request.param == "delta":
        return DeltaStore(tmp_path)
    if request.param == "iceberg":
        return IcebergStore(tmp_path)
    return PostgresStore(request.getfixturevalue("postgres"))


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServer]:
    """Starts programs that are killed before one of their effects."""
    with ForkServer("fault_points") as server:
        yield server


@pytest.fixture(scope="session")
def s3_parquet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Store]:
    """Parquet files on a real S3 server."""
    folder = tmp_path_factory.mktemp("versitygw")
    with running("versitygw", folder) as server:
        yield S3Store(server, folder / BUCKET, ParquetStore)
