"""Changes that a log-based tap of others reads from PostgreSQL, by the tutorial as it stands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from own_environments import WheelEnvironments, installed_program
from postgres_server import PASSWORD, Database
from tutorial_pages import extras_of, run_tutorial

pytestmark = [pytest.mark.pipe, pytest.mark.server, pytest.mark.costly]


def test_from_the_log_of_postgresql_to_delta(
    postgres: Database, environments: WheelEnvironments, tmp_path: Path
) -> None:
    page = "PostgreSQL's log into Delta"
    programs = environments.of(*extras_of(page)).programs
    if not (postgres.server.programs.parent / "lib" / "wal2json.so").exists():
        pytest.skip("PostgreSQL lacks the plugin wal2json")
    tap = installed_program("meltanolabs-tap-postgres==0.10.0", "tap-postgres")
    places = {
        '"db.example.com", "port": 5432': f'"127.0.0.1", "port": {postgres.server.port}',
        '"user": "reader"': '"user": "postgres"',
        '"database": "shop"': f'"database": "{postgres.name}"',
    }
    env = {
        "TAP_POSTGRES_PASSWORD": PASSWORD,
        "PATH": os.pathsep.join([os.environ["PATH"], str(tap.parent)]),
    }
    try:
        compared = run_tutorial(
            page, tmp_path, env=env, places=places, run_sql=postgres.run, programs=programs
        )
    finally:
        postgres.run("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
    assert compared == 2
