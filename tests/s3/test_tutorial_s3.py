"""The tutorial of a database, BATCH on S3 and Iceberg runs as it stands, with servers of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from own_environments import WheelEnvironments
from postgres_server import PASSWORD, Database
from tutorial_pages import extras_of, run_tutorial

pytestmark = [pytest.mark.pipe, pytest.mark.server]


@pytest.mark.parametrize("server", ["versitygw"], indirect=True)
def test_from_postgresql_to_iceberg_on_s3(
    server: Any, postgres: Database, environments: WheelEnvironments, tmp_path: Path
) -> None:
    page = "tutorial-iceberg.md"
    programs = environments.of(*extras_of(page)).programs
    places = {
        "db.example.com/shop": f"127.0.0.1:{postgres.server.port}/{postgres.name}",
        '"user": "reader"': '"user": "postgres"',
        "s3://bucket": server.folder(),
    }
    env = {**server.environment, "SHOP_PASSWORD": PASSWORD}
    compared = run_tutorial(
        page, tmp_path, env=env, places=places, run_sql=postgres.run, programs=programs
    )
    assert compared == 3
