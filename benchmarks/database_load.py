"""Rows into PostgreSQL, beside Spark's own JDBC append and `psql \\copy`, in one run.

Run as `python -m benchmarks.database_load [--rows N] [--columns N] [--runs N]`. Starts a cluster of
its own on loopback (the tests' one, so that it needs PostgreSQL's server programs). All load the
same rows: target-spark as RECORD lines and as Parquet files of BATCH messages, Spark from those
files, psql from CSV. Session starts of Spark are included on both sides; psql has none.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet

from benchmarks.processes import ROOT, Measured, describe, interleaved, median_seconds, run_piped
from benchmarks.processes import module as python_module
from shared.jdbc_drivers import DRIVERS

sys.path.insert(0, str(ROOT / "tests"))

from postgres_server import PASSWORD, Database, PostgresServer, free_port, server_programs

TYPES = {
    "bool": "boolean",
    "date32[day]": "date",
    "double": "double precision",
    "float": "real",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "string": "text",
}


@dataclass(frozen=True)
class Input:
    """The same rows in every form that is loaded."""

    folder: Path
    database: Database

    @property
    def files(self) -> list[Path]:
        return sorted((self.folder / "batches").glob("*.parquet"))

    def make(self, rows: int, columns: int) -> None:
        """Have tap-spark generate the rows, and write them down."""
        stream = {"name": "rows", "format": "rows", "row_count": rows, "column_count": columns}
        (self.folder / "batches").mkdir()
        storage = {"root": str(self.folder / "batches")}
        batch = {"encoding": {"format": "parquet", "compression": "snappy"}, "storage": storage}
        for name, more in (("records", {}), ("batch", {"batch_config": batch})):
            settings = {"streams": [stream], **more}
            (self.folder / f"{name}.json").write_text(json.dumps(settings))
            command = python_module("tap_spark.cli", "--config", f"{name}.json")
            with (self.folder / name).open("wb") as sink:
                subprocess.run(command, cwd=self.folder, stdout=sink, check=True)
        tables = [pyarrow.parquet.read_table(path) for path in self.files]
        table = pyarrow.concat_tables(tables)
        pyarrow.csv.write_csv(table, self.folder / "rows.csv")
        kinds = [f'"{field.name}" {_type(field.type)}' for field in table.schema]
        (self.folder / "table.sql").write_text(f"create table rows ({', '.join(kinds)})")

    def renew(self, *, create: bool) -> None:
        """An empty table, or none."""
        self.database.run('drop table if exists "rows", "_singer_ledger" cascade')
        if create:
            self.database.run((self.folder / "table.sql").read_text())

    def count(self) -> int:
        return int(self.database.value('select count(*) from "rows"'))


def _type(kind: Any) -> str:
    name = str(kind)
    if name.startswith("timestamp"):
        return "timestamptz" if "tz" in name else "timestamp"
    if name.startswith("decimal"):
        return f"numeric({kind.precision},{kind.scale})"
    return TYPES[name]


def target(given: Input, messages: str) -> Measured:
    given.renew(create=False)
    settings = {
        "format": "jdbc",
        "jdbc": {"url": given.database.url, "user": "postgres", "password": PASSWORD},
        "add_record_metadata": False,
        "activate_version": False,
    }
    (given.folder / "target.json").write_text(json.dumps(settings))
    command = python_module("target_spark.cli", "--config", "target.json", "--input", messages)
    return run_piped([command], given.folder)


def spark(given: Input) -> Measured:
    given.renew(create=True)
    options = {
        "url": given.database.url,
        "user": "postgres",
        "password": PASSWORD,
        "driver": DRIVERS[0].class_name,
        "dbtable": "rows",
    }
    append = {
        "package": DRIVERS[0].package,
        "options": options,
        "read": str(given.folder / "batches"),
    }
    return run_piped([python_module("benchmarks.plain_jdbc", json.dumps(append))], given.folder)


def psql(given: Input) -> Measured:
    given.renew(create=True)
    server = given.database.server
    login = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres"}
    statement = "\\copy rows from 'rows.csv' csv header"
    command = [
        str(server.programs / "psql"),
        "-X",
        "-q",
        "-d",
        given.database.name,
        "-c",
        statement,
    ]
    return run_piped([command], given.folder, {**login, "PGPASSWORD": PASSWORD})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=150)
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    programs = server_programs()
    if programs is None:
        raise SystemExit("PostgreSQL's server programs are not installed")
    folder = Path(tempfile.mkdtemp(prefix="bench-database-"))
    server = PostgresServer(programs, free_port())
    try:
        server.start()
        given = Input(folder, Database(server, "postgres"))
        given.make(chosen.rows, chosen.columns)

        def checked(case: Callable[[Input], Measured]) -> Measured:
            measured = case(given)
            if given.count() != chosen.rows:
                raise SystemExit(f"{given.count()} rows were loaded, not {chosen.rows}")
            return measured

        cases: dict[str, Callable[[], Measured]] = {
            "target-spark, RECORD": partial(checked, partial(target, messages="records")),
            "target-spark, BATCH Parquet": partial(checked, partial(target, messages="batch")),
            "Spark's JDBC append": partial(checked, spark),
            "psql \\copy": partial(checked, psql),
        }
        results = interleaved(chosen.runs, cases)
        append, copy = (median_seconds(results[name]) for name in list(cases)[2:])
        for name, measured in results.items():
            seconds = median_seconds(measured)
            ratios = f"{seconds / append:5.2f} x Spark's append {seconds / copy:5.2f} x psql"
            print(f"{name:28} {ratios}   {describe(measured)}")
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
