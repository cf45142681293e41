"""The tutorial of a database, BATCH on S3 and Iceberg runs as it stands, with servers of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from own_environments import WheelEnvironments
from postgres_server import PASSWORD, Database
from tutorial_pages import extras_of, recipe, run_script, run_tutorial

pytestmark = [pytest.mark.pipe, pytest.mark.server, pytest.mark.costly]


@pytest.mark.parametrize("server", ["versitygw"], indirect=True)
def test_from_postgresql_to_iceberg_on_s3(
    server: Any, postgres: Database, environments: WheelEnvironments, tmp_path: Path
) -> None:
    page = "From PostgreSQL to Iceberg on S3"
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


# The tutorial takes the same way, by which CI runs it.
@pytest.mark.slow
@pytest.mark.parametrize("server", ["versitygw"], indirect=True)
def test_recipe_of_a_database_into_a_lake(
    server: Any, postgres: Database, environments: WheelEnvironments, tmp_path: Path
) -> None:
    postgres.run("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    postgres.run("CREATE TABLE customers (id bigint PRIMARY KEY, name text)")
    postgres.run("INSERT INTO customers VALUES (1, 'Ada'), (2, 'Grace')")
    bucket = server.folder()
    script = recipe("A database into a lake, by BATCH on S3").replace("s3://bucket", bucket)
    script = script.replace(
        "db.example.com/shop", f"127.0.0.1:{postgres.server.port}/{postgres.name}"
    )
    script = script.replace('"user": "reader"', '"user": "postgres"')
    env = {**server.environment, "SHOP_PASSWORD": PASSWORD}
    run_script(script, tmp_path, env, seconds=600, programs=environments.of().programs)
    from pyiceberg.table import StaticTable

    place = {
        "s3.endpoint": server.endpoint,
        "s3.access-key-id": server.options["aws_access_key_id"],
    }
    place["s3.secret-access-key"] = server.options["aws_secret_access_key"]
    rows = StaticTable.from_metadata(f"{bucket}/lake/public-customers", place).scan().to_arrow()
    assert sorted(rows["name"].to_pylist()) == ["Ada", "Grace"]
