"""A stream that was read and has no rows gets its table in a database."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from database_loads import MARIADB_PASSWORD, PASSWORD, PG, MariaDb
from engines import threads
from whole_runs import run_target

from target_spark.config import target_config
from target_spark.load.loader import Loader

pytestmark = pytest.mark.server


def test_a_stream_without_rows_gets_its_table_and_columns(db: PG | MariaDb, tmp_path: Path):
    user = ("postgres", PASSWORD) if isinstance(db, PG) else ("tester", MARIADB_PASSWORD)
    url = db.database.url if isinstance(db, PG) else db.server.url()
    jdbc = {"url": url, "user": user[0], "password": user[1]}
    config = target_config({"format": "jdbc", "jdbc": jdbc, "add_record_metadata": False})
    for names, kind in ((["id"], "integer"), (["id", "v"], "string"), (["id"], "integer")):
        properties = {name: {"type": ["null", kind]} for name in names}
        schema = {"type": "SCHEMA", "stream": "t", "schema": {"properties": properties}}
        with closing(Loader(config, threads())) as loader:
            assert run_target(config, loader, tmp_path, [schema, {"type": "STATE", "value": 1}])
        assert db.table(f"select {', '.join(names)} from t") == []
