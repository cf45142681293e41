"""A PostgreSQL table into BATCH Parquet, compared with plain Spark JDBC scripts and COPY.

Run as `python -m benchmarks.jdbc_path [--rows N] [--columns N] [--runs N] [--partitions N]
[--only PATTERN]`. Starts its own cluster on loopback, as the tests do, which needs PostgreSQL's
server programs. Session starts are included on both sides. The CPU seconds of client and server,
which depend less on other load, are printed.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from benchmarks.database_load import CpuWatch, process_of
from benchmarks.processes import ROOT, Measured, interleaved, run_piped
from benchmarks.processes import module as python_module
from benchmarks.results import publish
from shared.spark.packages import DRIVERS

sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from postgres_server import (
    PASSWORD,
    Database,
    PostgresServer,
    free_port,
    server_programs,
)

COLUMNS = {
    "name": "'name ' || md5(i::text)",
    "amount": "((i % 1000000) / 4.0)::numeric(18,4)",
    "rate": "i / 7.0::float8",
    "active": "i % 3 = 0",
    "day": "'2020-01-01'::date + (i % 2000)::int",
    "at": "'2020-01-01'::timestamptz + i * '1 s'::interval",
    "code": "(i % 100000)::int",
    "note": "case when i % 5 > 0 then repeat('note ', (i % 8)::int) end",
    "big": "i::bigint * 7919",
}


def table(rows: int, columns: int) -> str:
    """Return the statements that create the table: a key, and the columns again and again."""
    listed = [
        f"{text} as {name}{number // len(COLUMNS) or ''}"
        for number, (name, text) in zip(range(columns - 1), cycle(COLUMNS.items()), strict=False)
    ]
    return (
        f"create table rows as select i::bigint as id, {', '.join(listed)} from generate_series(1, "
        f"{rows}) i; alter table rows add primary key (id); vacuum analyze rows;"
    )


def measured(server: PostgresServer, case: Callable[[], Measured]) -> Measured:
    """Run a case, and print the CPU seconds."""
    watch = CpuWatch(process_of(server))
    watch.start()
    try:
        return case()
    finally:
        client, served = watch.end()
        print(f"    CPU {client:.1f} s, {served:.1f} s of the server")


def tap(folder: Path, database: Database, partitions: int | None, engine: str = "auto") -> Measured:
    """Run tap-spark with BATCH Parquet; without `partitions` it chooses the parts."""
    shutil.rmtree(folder / "batches", ignore_errors=True)
    (folder / "batches").mkdir()
    connection: dict[str, Any] = {
        "name": "pg",
        "url": database.url,
        "user": "postgres",
        "password": PASSWORD,
    }
    if partitions is not None:
        connection["partitions"] = partitions
    settings = {
        "engine": engine,
        "connections": [{**connection, "include": ["public.rows"]}],
        "batch_config": {
            "encoding": {"format": "parquet", "compression": "snappy"},
            "storage": {"root": str(folder / "batches")},
        },
    }
    path = folder / "tap.json"
    path.write_text(json.dumps(settings))
    return run_piped([python_module("tap_spark.cli", "--config", str(path))], folder)


def plain(folder: Path, database: Database, partitions: int, rows: int) -> Measured:
    """Run a plain Spark script; several parts are ranges of the primary key."""
    options = {
        "url": database.url,
        "user": "postgres",
        "password": PASSWORD,
        "driver": DRIVERS[0].class_name,
        "dbtable": "public.rows",
        "fetchsize": "10000",
    }
    if partitions > 1:
        options |= {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(rows)}
        options["numPartitions"] = str(partitions)
    settings = {"package": DRIVERS[0].package, "options": options, "path": str(folder / "plain")}
    return run_piped([python_module("benchmarks.plain_jdbc", json.dumps(settings))], folder)


def copy(folder: Path, database: Database) -> Measured:
    """Measure the database alone: COPY all rows as text to a client that discards them."""
    server = database.server
    login = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres"}
    statement = "copy rows to stdout"
    command = [str(server.programs / "psql"), "-X", "-q", "-d", database.name, "-c", statement]
    return run_piped([command], folder, {**login, "PGPASSWORD": PASSWORD})


def cases(
    folder: Path, database: Database, rows: int, partitions: int
) -> dict[str, Callable[[], Measured]]:
    return {
        "tap-spark, its own choice": partial(tap, folder, database, None),
        f"tap-spark, {partitions} parts": partial(tap, folder, database, partitions),
        "tap-spark, by Spark": partial(tap, folder, database, None, "spark"),
        f"plain Spark, {partitions} parts": partial(plain, folder, database, partitions, rows),
        "plain Spark, one connection": partial(plain, folder, database, 1, rows),
        "COPY TO STDOUT": partial(copy, folder, database),
    }


def check(folder: Path, rows: int) -> None:
    """Check that the last run of the tap wrote every row."""
    count = ds.dataset(str(folder / "batches"), format="parquet").count_rows()
    if count != rows:
        raise SystemExit(f"{count} rows were written, not {rows}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="run the cases whose names match this")
    parser.add_argument("--partitions", type=int, default=2)
    chosen = parser.parse_args()
    programs = server_programs()
    if programs is None:
        raise SystemExit("PostgreSQL's server programs are not installed")
    folder = Path(tempfile.mkdtemp(prefix="bench-jdbc-"))
    server = PostgresServer(programs, free_port())
    try:
        server.start()
        database = Database(server, "postgres")
        database.run(table(chosen.rows, chosen.columns))
        every = {
            name: partial(measured, server, case)
            for name, case in cases(folder, database, chosen.rows, chosen.partitions).items()
            if re.search(chosen.only, name)
        }
        reference = f"plain Spark, {chosen.partitions} parts"
        results = interleaved(chosen.runs, every)
        if reference in every:
            publish("jdbc_path", results, reference)
        if any(name.startswith("tap-spark") for name in every):
            check(folder, chosen.rows)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
