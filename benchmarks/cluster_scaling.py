"""Both programs on a standalone cluster, beside a plain PySpark job on the same one.

Run as `python -m benchmarks.cluster_scaling [--rows N ...] [--workers N ...] [--files N]
[--streams N] [--runs N]`. Workers have one core each. All data is on an S3 server on loopback,
which needs versitygw (as the tests do). Session starts are included. The reference of each case has
the same input, the same workers and the same jars.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from benchmarks.processes import ROOT, Measured, interleaved, median_seconds, module, run_piped
from benchmarks.results import markdown, save

sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from s3_servers import Server, running
from spark_cluster import SparkCluster

from shared.spark.bake_packages import bake, coordinates
from shared.spark.packages import INDEX
from shared.storage.access import StorageOptions, remote

COLUMNS = 10
ROWS_OF_FILE, ROWS_OF_SMALL_FILE, ROWS_OF_STREAM = 500_000, 1_000, 5
PLAIN_STREAMS = 60
"""Streams of the plain job at most, which takes the same time for each."""


@dataclass(frozen=True)
class Place:
    """Where cases run.

    Attributes:
        folder: For settings and logs.
        cluster: Runs Spark.
        server: Has the data.
        environ: Of the programs and the plain job.
    """

    folder: Path
    cluster: SparkCluster
    server: Server
    environ: dict[str, str]

    def spark(self) -> dict[str, Any]:
        """Return the `spark` block of a program."""
        conf = {"spark.executor.memory": "800m"}
        settings: dict[str, Any] = self.cluster.settings(conf)
        return settings

    def files(self, url: str) -> tuple[Any, str]:
        """Return the file system of a URL and the path inside it."""
        return remote(url, StorageOptions(self.server.options))

    def empty(self, *urls: str) -> None:
        """Remove all files below URLs."""
        for url in urls:
            filesystem, inside = self.files(url)
            filesystem.invalidate_cache()
            if filesystem.exists(inside):
                filesystem.rm(inside, recursive=True)

    def run(self, url: str, rows: int, *commands: list[str]) -> Measured:
        """Run commands in a pipe, and check the number of rows below the URL."""
        measured = run_piped(commands, self.folder, self.environ)
        filesystem, inside = self.files(url)
        filesystem.invalidate_cache()
        parts = [name for name in filesystem.find(inside) if name.endswith(".parquet")]
        loaded = ds.dataset(parts, filesystem=filesystem).count_rows() if parts else 0
        assert loaded == rows, f"{loaded} rows instead of {rows} in {url}"
        return measured

    def program(self, name: str, settings: dict[str, Any], *options: str) -> list[str]:
        """Return the command of a program with settings."""
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(settings))
        return module(f"{name}.cli", "--config", str(path), *options)

    def run_plain(self, job: str, *arguments: str) -> None:
        """Run the plain job."""
        run_piped([self.plain(job, *arguments)], self.folder, self.environ)

    def plain(self, job: str, *arguments: str) -> list[str]:
        """Return the command of the plain job, on all workers."""
        conf = json.dumps(self.spark()["conf"])
        master = self.cluster.settings()["master"]
        return module("benchmarks.plain_cluster_job", master, conf, job, *arguments)


def tap(place: Place, streams: list[dict[str, Any]], root: str) -> dict[str, Any]:
    storage = {"root": root, "options": place.server.options}
    batch = {"encoding": {"format": "parquet"}, "storage": storage}
    return {"streams": streams, "spark": place.spark(), "batch_config": batch}


def target(place: Place, path: str, root: str, *, metadata: bool = False) -> dict[str, Any]:
    return {
        "path": path,
        "add_record_metadata": metadata,
        "spark": place.spark(),
        "storage_options": place.server.options,
        "staging": {"root": f"{root}/staging"},
        "batch_config": {
            "storage": {"root": root, "options": place.server.options}, "cleanup": True
        },
    }  # fmt: skip


def table_by_batch(place: Place, source: str, rows: int, metadata: bool) -> Measured:
    """Copy a table of Parquet files through both programs.

    Args:
        place: Where it runs.
        source: The table.
        rows: Its rows.
        metadata: Whether the target adds columns, so that it cannot adopt files.
    """
    out, root = "s3://batches/out", "s3://batches/files"
    place.empty(out, root)
    stream = {"name": "rows", "format": "parquet", "path": source}
    settings = tap(place, [stream], root)
    if not metadata:
        # A target that adopts files needs no executor.
        workers = len(place.cluster.processes) - 1
        settings["spark"]["conf"]["spark.cores.max"] = str(workers)
    return place.run(
        out, rows,
        place.program("tap_spark", settings),
        place.program("target_spark", target(place, out, root, metadata=metadata)),
    )  # fmt: skip


def table_by_plain(place: Place, source: str, rows: int) -> Measured:
    out = "s3://batches/plain"
    place.empty(out)
    return place.run(out, rows, place.plain("parquet", source, out))


def small_files(place: Place, files: int, form: str) -> list[str]:
    """Make small batch files if they do not exist; return their URLs."""
    source = f"batches/small-{form}-source/one.{ENDINGS[form]}"
    folder = place.folder / "s3" / "batches" / f"small-{form}"
    folder.mkdir(exist_ok=True)
    for number in range(files):
        shutil.copy2(place.folder / "s3" / source, folder / f"{number}.{ENDINGS[form]}")
    return [f"s3://batches/small-{form}/{number}.{ENDINGS[form]}" for number in range(files)]


def files_by_target(place: Place, files: int, form: str) -> Measured:
    """Load one stream of many batch files."""
    out, root = "s3://batches/out", f"s3://batches/small-{form}"
    place.empty(out)
    batches = small_files(place, files, form)
    schema = json.loads((place.folder / "schema.json").read_text())
    encoding = {"format": form, "compression": "gzip" if form == "jsonl" else "none"}
    messages = [
        {"type": "SCHEMA", "stream": "rows", "schema": schema, "key_properties": []},
        *(
            {"type": "BATCH", "stream": "rows", "encoding": encoding, "manifest": [url]}
            for url in batches
        ),
        {"type": "STATE", "value": {"done": True}},
    ]
    (place.folder / "input").write_text("".join(json.dumps(one) + "\n" for one in messages))
    settings = target(place, out, root)
    command = place.program("target_spark", settings, "--input", str(place.folder / "input"))
    return place.run(out, files * ROWS_OF_SMALL_FILE, command)


def files_by_plain(place: Place, files: int, form: str) -> Measured:
    out, source = "s3://batches/plain", f"s3://batches/small-{form}"
    place.empty(out)
    small_files(place, files, form)
    return place.run(out, files * ROWS_OF_SMALL_FILE, place.plain(form, source, out))


ENDINGS = {"jsonl": "jsonl.gz", "parquet": "parquet"}


def streams_by_programs(place: Place, streams: int) -> Measured:
    """Load many tiny tables through both programs."""
    out, root = "s3://batches/out", "s3://batches/files"
    place.empty(out, root)
    sources = [
        {"name": f"s{number}", "format": "csv", "path": f"s3://batches/tiny/{number}.csv"}
        for number in range(streams)
    ]
    settings = tap(place, sources, root)
    del settings["batch_config"]
    return place.run(
        out, streams * ROWS_OF_STREAM,
        place.program("tap_spark", settings),
        place.program("target_spark", target(place, out, root)),
    )  # fmt: skip


def streams_by_plain(place: Place, streams: int) -> Measured:
    out = "s3://batches/plain"
    place.empty(out)
    return place.run(out, streams * ROWS_OF_STREAM, place.plain("streams", str(streams), out))


@contextmanager
def places(folder: Path, workers: int, server: Server) -> Iterator[Place]:
    """Start a cluster with a number of workers."""
    jars = Path(os.environ.get("SINGER_SPARK_BENCH_JARS", folder / "jars"))
    if not (jars / INDEX).exists():
        bake(jars, coordinates(["s3"]))
    environ = server.environment | {"SINGER_SPARK_JARS": f"local:{jars}"}
    (own := folder / f"cluster-{workers}").mkdir()
    cluster = SparkCluster(own, [])
    try:
        cluster.start(workers)
        yield Place(folder, cluster, server, environ | {"PYTHONPATH": str(ROOT)})
    finally:
        cluster.stop()


def prepare(place: Place, rows: Sequence[int], files: int, streams: int) -> None:
    """Make the inputs: tables, one small batch file, tiny CSV files."""
    for count in rows:
        size = str(count), str(COLUMNS), str(max(1, count // ROWS_OF_FILE))
        place.run_plain("make", *size, f"s3://batches/rows-{count}")
    if files:
        one = str(ROWS_OF_SMALL_FILE), str(COLUMNS)
        place.run_plain("small", *one, "s3://batches", str(place.folder / "schema.json"))
    filesystem, inside = place.files("s3://batches/tiny")
    for number in range(streams):
        text = "id,name\n" + "".join(f"{n},name {n}\n" for n in range(ROWS_OF_STREAM))
        filesystem.pipe_file(f"{inside}/{number}.csv", text.encode())


@dataclass(frozen=True)
class Case:
    """What both do.

    Attributes:
        name: For the table.
        rows: Of the programs.
        programs: Runs them.
        plain_rows: Of the plain job.
        plain: Runs it.
    """

    name: str
    rows: int
    programs: Callable[[], Measured]
    plain_rows: int
    plain: Callable[[], Measured]


def cases(place: Place, chosen: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases."""
    for rows in chosen.rows:
        of = place, f"s3://batches/rows-{rows}", rows
        for metadata, files in ((False, ""), (True, ", files not adopted")):
            programs, plain = partial(table_by_batch, *of, metadata), partial(table_by_plain, *of)
            yield Case(f"{rows:,} rows, Parquet{files}", rows, programs, rows, plain)
    yield from _of_many(place, chosen)


def _of_many(place: Place, chosen: argparse.Namespace) -> Iterator[Case]:
    for form in chosen.forms if chosen.files else ():
        files, rows = (place, chosen.files, form), chosen.files * ROWS_OF_SMALL_FILE
        programs, plain = partial(files_by_target, *files), partial(files_by_plain, *files)
        yield Case(f"{chosen.files:,} batch files, {form}", rows, programs, rows, plain)
    if chosen.streams:
        fewer = min(chosen.streams, PLAIN_STREAMS)
        yield Case(
            f"{chosen.streams:,} streams of {ROWS_OF_STREAM} rows",
            chosen.streams * ROWS_OF_STREAM,
            partial(streams_by_programs, place, chosen.streams),
            fewer * ROWS_OF_STREAM,
            partial(streams_by_plain, place, fewer),
        )


def measured(workers: int, runs: int, case: Case) -> tuple[list[str], dict[str, Any]]:
    """Measure a case; return its line of the table, and its figures."""
    results = interleaved(runs, {"plain": case.plain, "programs": case.programs})
    took = {name: median_seconds(value) for name, value in results.items()}
    rates = case.plain_rows / took["plain"] / workers, case.rows / took["programs"] / workers
    name = f"{case.name}, {workers} worker{'s' * (workers > 1)}"
    line = [name, *(f"{seconds:.0f}" for seconds in took.values())]
    line += [*(f"{rate:,.0f}" for rate in rates), f"{rates[1] / rates[0]:.2f}"]
    print(line, flush=True)
    return line, {"case": name, "rows": case.rows, "plain_rows": case.plain_rows, **took}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[5_000_000, 20_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--forms", nargs="+", default=["jsonl", "parquet"])
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=1)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-cluster-"))
    (folder / "s3").mkdir()
    runs: list[tuple[list[str], dict[str, Any]]] = []
    try:
        with running("versitygw", folder / "s3") as server:
            for workers in chosen.workers:
                with places(folder, workers, server) as place:
                    if workers == chosen.workers[0]:
                        prepare(place, chosen.rows, chosen.files, chosen.streams)
                    for case in cases(place, chosen):
                        runs.append(measured(workers, chosen.runs, case))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        head = ["", "plain, s", "programs, s", "plain, rows/s and core",
                "programs, rows/s and core", "times plain"]  # fmt: skip
        shown = markdown(head, [line for line, _ in runs])
        save("cluster_scaling", shown, [figures for _, figures in runs])


if __name__ == "__main__":
    main()
