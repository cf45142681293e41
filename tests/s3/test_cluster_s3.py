"""Both programs on a standalone cluster whose workers see neither our disk nor our packages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pipe_programs import TARGET, Programs
from postgres_server import PASSWORD, Database
from spark_cluster import (
    SparkCluster,
    can_hide_folders,
    kill,
    submit_command,
    submit_environment,
    virtual_environment,
)

from shared.storage.access import StorageOptions, remote

pytestmark = [pytest.mark.pipe, pytest.mark.server, pytest.mark.costly]
SCHEMA = {"properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}}}
BEGIN = {"type": "SCHEMA", "stream": "s", "schema": SCHEMA, "key_properties": []}
# The other server serves nothing but these tests; starting it would be for nothing.
only_versitygw = pytest.mark.parametrize("server", ["versitygw"], indirect=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    folder = Path(tempfile.mkdtemp(prefix="spark-cluster-"))
    home = Path.home()
    caches = [path for path in (home / ".ivy2.5.2", home / ".cache") if path.is_dir()]
    cluster = SparkCluster(folder, [tmp_path_factory.getbasetemp(), *caches])
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def lines(first: int, last: int, *more: dict[str, Any]) -> bytes:
    """Return RECORD lines with these ids, and a STATE."""
    rows = [{"id": n, "name": f"n{n}"} for n in range(first, last)]
    records = [{"type": "RECORD", "stream": "s", "record": row} for row in [*rows, *more]]
    state = {"type": "STATE", "value": {"bookmark": last}}
    return b"".join(json.dumps(message).encode() + b"\n" for message in (*records, state))


def target(cluster: SparkCluster, server: Any, **settings: Any) -> dict[str, Any]:
    return {
        "spark": cluster.settings(),
        "engine": "spark",
        "storage_options": server.options,
        "staging": {"root": f"{server.folder()}/staging"},
        "batch_config": {"storage": {"options": server.options}},
        "add_record_metadata": False,
        **settings,
    }


def names(url: str, server: Any) -> list[str]:
    filesystem, path = remote(url, StorageOptions(server.options))
    filesystem.invalidate_cache()
    return filesystem.find(path) if filesystem.exists(path) else []


@only_versitygw
def test_records_are_staged_on_s3(
    cluster: SparkCluster, server: Any, programs: Programs, tmp_path: Path
) -> None:
    """By spark-submit, for executors without packages; a rejected record names its input line."""
    folder = server.folder()
    config = target(
        cluster, server, path=f"{folder}/out", staging={"root": f"{folder}/staging"},
        failure={"policy": "SendToDLQ", "dead_letter_path": str(tmp_path / "letters")},
        spark={"master": "local[2]", "conf": {"spark.pyspark.python": "/no/such/python"}},
    )  # fmt: skip
    supplied = json.dumps(BEGIN).encode() + b"\n" + lines(0, 500, {"id": "no number"})
    archive = virtual_environment(cluster.folder / "environment.tar.gz")
    submit = submit_command("target-spark", *cluster.submit_options(archive))
    programs.environ |= submit_environment()
    done = programs.run([*submit, *programs.target_command(config)[len(TARGET) :]], supplied)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout.splitlines()[-1]) == {"bookmark": 500}
    filesystem, _ = remote(folder, StorageOptions(server.options))
    parts = [name for name in names(f"{folder}/out/s", server) if name.endswith(".parquet")]
    actual = [
        row["id"] for part in parts for row in pq.read_table(filesystem.open(part)).to_pylist()
    ]
    assert sorted(actual) == list(range(500))
    files = (tmp_path / "letters").rglob("*.jsonl")
    letters = [json.loads(text) for file in files for text in file.read_text().splitlines()]
    [letter] = [letter for letter in letters if letter["type"] == "RECORD"]
    assert letter["record"]["id"] == "no number"
    assert letter["_sdc_error"]["line"] == 502
    assert "file" not in letter["_sdc_error"]
    assert names(f"{folder}/staging", server) == []
    assert list(cluster.folder.glob("worker-*/app-*/*/environment/pyvenv.cfg"))


@only_versitygw
def test_batch_files_go_from_table_to_table(
    cluster: SparkCluster, server: Any, programs: Programs
) -> None:
    """Executors get the jars of Delta with the job, and write to a folder that all share."""
    source, lake = cluster.folder / "source", cluster.folder / "lake"
    source.mkdir()
    rows = [json.dumps({"id": n, "name": f"é{n}"}) for n in range(300)]
    (source / "rows.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    storage = {"root": server.folder(), "options": server.options}
    tap = {
        "streams": [{"name": "s", "format": "json", "path": str(source)}],
        "spark": cluster.settings(),
        "batch_config": {"encoding": {"format": "parquet"}, "storage": storage},
    }
    into = target(cluster, server, path=str(lake), format="delta")
    into["batch_config"] = {"storage": storage, "cleanup": True}
    programs.pipe(tap, into).check()
    assert (cluster.folder / "python-was-here").exists()
    table = DeltaTable(str(lake / "s")).to_pyarrow_table().sort_by("id")
    assert table.column("name").to_pylist() == [f"é{n}" for n in range(300)]
    assert names(storage["root"], server) == []


@only_versitygw
def test_lost_executors_lose_nothing(
    cluster: SparkCluster, server: Any, programs: Programs, postgres: Database
) -> None:
    """One executor is killed while it works, then a worker is gone for good."""
    jdbc = {"url": postgres.url, "user": "postgres", "password": PASSWORD}
    spark = cluster.settings({"spark.cores.max": "2"})
    config = target(cluster, server, format="jdbc", jdbc=jdbc, batch_size_rows=400, spark=spark)
    process = subprocess.Popen(
        programs.target_command(config), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=programs.folder, env=programs.env(),
    )  # fmt: skip
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    lost = len(cluster.processes) - 1
    try:
        stdin.write(json.dumps(BEGIN).encode() + b"\n" + lines(0, 1200))
        stdin.flush()
        until = time.monotonic() + 120
        while not (running := cluster.executors(1)) and time.monotonic() < until:
            time.sleep(0.1)
        assert running
        kill(running)
        assert json.loads(stdout.readline()) == {"bookmark": 1200}
        cluster.kill_worker(lost)
        out, err = process.communicate(lines(1200, 2400), timeout=300)
    finally:
        process.kill()
        cluster.add_worker()
    assert process.returncode == 0, err.decode()
    assert json.loads(out.splitlines()[-1]) == {"bookmark": 2400}
    assert postgres.value("select count(*), count(distinct id), max(id) from s") == "2400|2400|2399"


@only_versitygw
def test_a_folder_of_the_driver_is_an_error_that_says_so(
    cluster: SparkCluster, server: Any, programs: Programs, tmp_path: Path
) -> None:
    """By spark-submit, with the packages as a zip."""
    if not can_hide_folders():
        pytest.skip("not offered: processes cannot have mounts of their own here")
    config = target(cluster, server, path=str(tmp_path / "out"))
    submit = submit_command("target-spark", *cluster.submit_options())
    programs.environ |= submit_environment()
    done = programs.run(
        [*submit, *programs.target_command(config)[len(TARGET) :]],
        json.dumps(BEGIN).encode() + b"\n" + lines(0, 9),
    )
    assert done.returncode == 6
    assert done.stdout == b""
    [last] = [line for line in done.stderr.decode().splitlines() if "| ERROR" in line]
    assert f"cannot write to '{tmp_path}/out/s'" in last
    assert "executors on other machines must share the folder" in last


@only_versitygw
def test_both_ends_share_the_cores_of_the_cluster(
    cluster: SparkCluster, server: Any, programs: Programs
) -> None:
    """Neither end waits for the other with settings that say nothing of cores.

    Executors read S3 with the credentials of the program's environment, which the workers lack.
    """
    folder = server.folder()
    filesystem, inside = remote(folder, StorageOptions(server.options))
    for number in range(4):
        rows = "".join(f"{number * 1000 + n},{'x' * 900}\n" for n in range(1000))
        with filesystem.open(f"{inside}/{number}.csv", "wb") as file:
            file.write(f"id,name\n{rows}".encode())
    stream = {"name": "s", "format": "csv", "path": f"{folder}/*.csv"}
    stream |= {"replication_method": "INCREMENTAL"}
    tap = {
        "streams": [stream],
        "spark": cluster.settings(),
        "engine": "spark",
        "spool": {"bytes": 1 << 20},
    }
    config = target(cluster, server, path=str(cluster.folder / "shared"), batch_size_bytes=1 << 20)
    programs.environ |= server.environment
    done = programs.pipe(tap, config).check()
    for log in (done.tap_log, done.target_log):
        # A worker that another test has killed may still count.
        assert re.search("takes 1 of [23] cores of the cluster", log)
        assert server.environment["AWS_SECRET_ACCESS_KEY"] not in log
    table = pq.read_table(cluster.folder / "shared" / "s")
    assert sorted(table.column("id").to_pylist()) == list(range(4000))


@only_versitygw
def test_a_program_without_executors_says_so_and_ends(
    cluster: SparkCluster, server: Any, programs: Programs
) -> None:
    """No worker has the memory that an executor asks for."""
    spark = {**cluster.settings({"spark.executor.memory": "9g"}), "executor_wait_seconds": 4}
    config = target(cluster, server, path=str(cluster.folder / "never"), spark=spark)
    supplied = json.dumps(BEGIN).encode() + b"\n" + lines(0, 9)
    done = programs.run(programs.target_command(config), supplied)
    assert done.returncode == 17, done.stderr.decode()
    assert done.stdout == b""
    assert "Spark has had no executor for 2 s" in done.stderr.decode()
    [last] = [line for line in done.stderr.decode().splitlines() if "| ERROR" in line]
    assert "setting 'spark.executor_wait_seconds': no executor has come in time" in last
