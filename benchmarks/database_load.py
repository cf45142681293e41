"""Rows into PostgreSQL, compared with Spark's own JDBC append and `psql \\copy`.

Run as `python -m benchmarks.database_load [--rows N] [--columns N] [--runs N]`. Starts its own
cluster on loopback, as the tests do, which needs PostgreSQL's server programs. All load the same
rows: target-spark as RECORD lines and as Parquet files of BATCH messages, Spark from those
files, psql from CSV. Session starts of Spark are included on both sides; psql has none. Also
printed are the time from the first job to the last STATE, and the CPU seconds of client and server,
which depend less on other load. Java's class archive is created first, as an installation does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow.csv
import pyarrow.parquet

from benchmarks.processes import ROOT, Measured, interleaved, run_piped
from benchmarks.processes import module as python_module
from benchmarks.results import publish
from shared.spark.jvm import SWITCH
from shared.spark.packages import DRIVERS

sys.path.insert(0, str(ROOT / "tests" / "helpers"))

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

SAMPLE_SECONDS = 0.25
TIMES = "times.json"


@dataclass(frozen=True, kw_only=True)
class Loaded(Measured):
    """The result of one run, with the CPU seconds of client and server.

    Attributes:
        client: CPU seconds of the programs that load.
        server: CPU seconds of the sessions of the server.
        loading: Seconds from the first job to the last STATE; None for the other programs.
    """

    client: float
    server: float
    loading: float | None


class CpuWatch(threading.Thread):
    """Sums the CPU seconds of all child processes, without the server's."""

    def __init__(self, server: psutil.Process) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._seen: dict[tuple[int, float], float] = {}
        self._done = threading.Event()
        self._ended = _ended_cpu()
        self._before = _server_cpu(server)

    def run(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            others = {process.pid for process in self._server.children(recursive=True)}
            for process in psutil.Process().children(recursive=True):
                try:
                    if process.pid not in {*others, self._server.pid}:
                        used = process.cpu_times()
                        key = process.pid, process.create_time()
                        self._seen[key] = used.user + used.system
                except psutil.Error:
                    continue

    def end(self) -> tuple[float, float]:
        """Return the CPU seconds of the programs and of the server since the start."""
        self._done.set()
        self.join()
        # What a short program used after its last sample is known once it has ended.
        client = max(sum(self._seen.values()), _ended_cpu() - self._ended)
        return client, _server_cpu(self._server) - self._before


def process_of(server: PostgresServer) -> psutil.Process:
    """Find the server's main process: our process that listens on its port."""
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any(c.laddr.port == server.port for c in process.net_connections("tcp")):
                return process
    raise SystemExit("the server's process is not found")


def _ended_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _server_cpu(server: psutil.Process) -> float:
    """Return the CPU seconds of the server and its ended sessions, which are its children."""
    time.sleep(SAMPLE_SECONDS)
    used = server.cpu_times()
    return float(used.user + used.system + used.children_user + used.children_system)


@dataclass(frozen=True)
class Input:
    """The same rows in every format to load."""

    folder: Path
    database: Database

    @property
    def files(self) -> list[Path]:
        return sorted((self.folder / "batches").glob("*.parquet"))

    def make(self, rows: int, columns: int) -> None:
        """Generate the rows with tap-spark, and write them to files."""
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
        """Create an empty table, or drop it."""
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


def watched(arguments: Sequence[str]) -> int:
    """Run target-spark; record when its first job began and when it wrote its last STATE."""
    from shared.engine.engine import Threads  # noqa: PLC0415
    from shared.singer.stdout import MessageOutput  # noqa: PLC0415
    from shared.spark.session import SessionStarter  # noqa: PLC0415
    from target_spark.cli import main as target_main  # noqa: PLC0415

    times: dict[str, float] = {}
    get, write, run = SessionStarter.get, MessageOutput.write, Threads.run

    def first_get(self: SessionStarter) -> Any:
        session = get(self)
        times.setdefault("first job", time.monotonic())
        return session

    def first_run(self: Threads, *task: Any) -> Any:
        times.setdefault("first job", time.monotonic())
        return run(self, *task)

    def last_write(self: MessageOutput, data: bytes | bytearray | memoryview) -> None:
        write(self, data)
        times["last STATE"] = time.monotonic()

    SessionStarter.get = first_get  # type: ignore[method-assign]
    MessageOutput.write = last_write  # type: ignore[method-assign]
    Threads.run = first_run  # type: ignore[method-assign]
    code = target_main(arguments)
    Path(TIMES).write_text(json.dumps(times["last STATE"] - times["first job"]))
    return code


def target(source: Input, messages: str, engine: str = "auto") -> Measured:
    source.renew(create=False)
    settings = {
        "engine": engine,
        "format": "jdbc",
        "jdbc": {"url": source.database.url, "user": "postgres", "password": PASSWORD},
        "add_record_metadata": False,
        "activate_version": False,
    }
    (source.folder / "target.json").write_text(json.dumps(settings))
    arguments = ("--config", "target.json", "--input", messages)
    command = python_module("benchmarks.database_load", "--watched", *arguments)
    return run_piped([command], source.folder)


def spark(source: Input) -> Measured:
    source.renew(create=True)
    options = {
        "url": source.database.url,
        "user": "postgres",
        "password": PASSWORD,
        "driver": DRIVERS[0].class_name,
        "dbtable": "rows",
    }
    append = {
        "package": DRIVERS[0].package,
        "options": options,
        "read": str(source.folder / "batches"),
    }
    return run_piped([python_module("benchmarks.plain_jdbc", json.dumps(append))], source.folder)


def psql(source: Input) -> Measured:
    source.renew(create=True)
    server = source.database.server
    login = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres"}
    statement = "\\copy rows from 'rows.csv' csv header"
    command = [
        str(server.programs / "psql"),
        "-X",
        "-q",
        "-d",
        source.database.name,
        "-c",
        statement,
    ]
    return run_piped([command], source.folder, {**login, "PGPASSWORD": PASSWORD})


def loaded(source: Input, rows: int, case: Callable[[Input], Measured]) -> Loaded:
    """Run a case, and check that it loaded all rows."""
    (source.folder / TIMES).write_text("null")
    watch = CpuWatch(process_of(source.database.server))
    watch.start()
    measured = case(source)
    client, server = watch.end()
    if source.count() != rows:
        raise SystemExit(f"{source.count()} rows were loaded, not {rows}")
    loading = json.loads((source.folder / TIMES).read_text())
    since = "" if loading is None else f"{loading:.1f} s from the first job, "
    print(f"    {since}CPU {client:.1f} s, {server:.1f} s of the server")
    return Loaded(**vars(measured), client=client, server=server, loading=loading)


def report(results: Mapping[str, Sequence[Loaded]]) -> None:
    """Publish the cases beside Spark's append; print processor times and ratios to psql."""
    *_, append, copy = results
    publish("database_load", results, append)
    for name, runs in results.items():
        by_copy = statistics.median(
            a.seconds / b.seconds for a, b in zip(runs, results[copy], strict=True)
        )
        client = statistics.median(run.client for run in runs)
        server = statistics.median(run.server for run in runs)
        print(f"{name}: {by_copy:.2f} x psql")
        print(f"    CPU {client:.1f} s, {server:.1f} s of the server")
        both = zip(runs, results[copy], strict=True)
        pairs = [(a.loading, b.seconds) for a, b in both if a.loading]
        if pairs:
            seconds, ratio = (
                statistics.median(loading for loading, _ in pairs),
                statistics.median(loading / other for loading, other in pairs),
            )
            print(f"    {seconds:.1f} s from the first job to the last STATE, {ratio:.2f} x psql")


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
        source = Input(folder, Database(server, "postgres"))
        source.make(chosen.rows, chosen.columns)

        os.environ.setdefault(SWITCH, str(folder / "classes"))
        subprocess.run(python_module("shared.spark.make_class_archive"), cwd=ROOT, check=False)
        checked = partial(partial, loaded, source, chosen.rows)
        cases: dict[str, Callable[[], Measured]] = {
            "target-spark, RECORD": checked(partial(target, messages="records")),
            "the same, by threads": checked(partial(target, messages="records", engine="threads")),
            "target-spark, BATCH Parquet": checked(partial(target, messages="batch")),
            "Spark's JDBC append": checked(spark),
            "psql \\copy": checked(psql),
        }
        results = interleaved(chosen.runs, cases)
        report({name: [r for r in runs if isinstance(r, Loaded)] for name, runs in results.items()})
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watched"]:
        sys.exit(watched(sys.argv[2:]))
    main()
