"""Both programs over a real PostgreSQL: discovery, selection, state, and lost connections."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pipe_programs import SPARK, TAP, TARGET
from postgres_server import PASSWORD, Database

pytestmark = [pytest.mark.pipe, pytest.mark.server, pytest.mark.costly]
ROWS, CUT_ROWS = 60_000, 20_000


@pytest.fixture(scope="module")
def shop(postgres: Database) -> Database:
    postgres.run(
        f"""
        create table orders (id bigint primary key, total numeric(12,2), at timestamptz, note text);
        insert into orders select n, n / 7.0, timestamptz '2026-01-01Z' + n * interval '1 s',
            repeat('x', 40) from generate_series(1, {ROWS}) n;
        create table empty_one (id int primary key);
        analyze
        """
    )
    return postgres


class Runs:
    """The programs in a folder of their own."""

    def __init__(self, folder: Path, shop: Database, **connection: Any) -> None:
        self.folder = folder
        self.supplied = {"name": "shop", "url": shop.url, "user": "postgres", **connection}

    def tap(self, *options: str, **settings: Any) -> list[str]:
        path = self.folder / "tap.json"
        path.write_text(json.dumps({"spark": SPARK, "connections": [self.supplied], **settings}))
        return [*TAP, "--config", str(path), *options]

    def run(self, command: list[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        # The password comes as secrets do: not from the file.
        connections = json.dumps([{**self.supplied, "password": PASSWORD}])
        environ = {**os.environ, "TAP_SPARK_CONNECTIONS": connections}
        ran = subprocess.run(
            [*command, "--config=ENV"] if command[:3] == TAP else command,
            input=stdin,
            capture_output=True,
            timeout=300,
            env=environ,
            cwd=self.folder,
        )
        assert PASSWORD not in ran.stderr.decode()
        return ran


def records(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_discover_select_load_and_resume(shop: Database, tmp_path: Path) -> None:
    runs = Runs(tmp_path, shop)
    actual = runs.run(runs.tap("--discover"))
    assert actual.returncode == 0, actual.stderr.decode()
    catalog = json.loads(actual.stdout)
    assert [entry["stream"] for entry in catalog["streams"]] == [
        "public-empty_one",
        "public-orders",
    ]
    root = catalog["streams"][1]["metadata"][0]["metadata"]
    assert root["table-key-properties"] == ["id"]
    root.update({"replication-method": "INCREMENTAL", "replication-key": "id"})
    (tmp_path / "catalog.json").write_text(json.dumps(catalog))
    (tmp_path / "target.json").write_text(json.dumps({"spark": SPARK, "path": "out"}))
    load = [*TARGET, "--config", str(tmp_path / "target.json")]

    sent = runs.run(runs.tap("--catalog", str(tmp_path / "catalog.json"), parallel_streams=2))
    assert sent.returncode == 0, sent.stderr.decode()
    loaded = runs.run(load, sent.stdout)
    assert loaded.returncode == 0, loaded.stderr.decode()
    state = loaded.stdout.splitlines()[-1]
    assert json.loads(state)["bookmarks"]["public-orders"]["replication_key_value"] == ROWS
    table = pq.read_table(tmp_path / "out" / "public-orders")
    assert table.num_rows == ROWS
    existing = shop.run("select sum(total), max(at at time zone 'UTC') from orders").strip()
    total = sum(value for value in table["total"].to_pylist())
    newest = max(table["at"].to_pylist()).strftime("%Y-%m-%d %H:%M:%S")
    assert existing == f"{total}|{newest}"

    shop.run(f"insert into orders values ({ROWS + 1}, 1.5, null, 'new')")
    (tmp_path / "state.json").write_bytes(state)
    again = runs.run(
        runs.tap(
            "--catalog", str(tmp_path / "catalog.json"), "--state", str(tmp_path / "state.json")
        )
    )
    new = [m["record"] for m in records(again.stdout) if m["type"] == "RECORD"]
    assert [record["id"] for record in new] == [ROWS, ROWS + 1]  # the tie comes again
    assert new[1]["total"] == 1.5


def test_the_summary_has_the_rows_that_the_database_counts(shop: Database, tmp_path: Path) -> None:
    runs = Runs(tmp_path, shop, count_rows=True)
    common = {"format": "jdbc", "connection": "shop"}
    changing = (
        "select n from generate_series(0, extract(us from clock_timestamp())::int % 100000) n"
    )
    streams = [
        {"name": "orders", "table": "public.orders", **common},
        {"name": "changing", "query": changing, **common},
    ]
    sent = runs.run(runs.tap("--summary", "summary.json", streams=streams))
    assert sent.returncode == 0, sent.stderr.decode()
    actual = json.loads((tmp_path / "summary.json").read_text())["streams"]
    present = int(shop.value("select count(*) from orders"))
    assert (actual["orders"]["sent"], actual["orders"]["source_rows"]) == (present, present)
    changed = actual["changing"]
    text = f"{changed['sent']} records were sent, the source had {changed['source_rows']} rows when"
    assert changed["sent"] != changed["source_rows"]
    assert sent.stderr.decode().count("records were sent, the source had") == 1
    assert text in sent.stderr.decode()


@pytest.mark.parametrize("method", ["FULL_TABLE", "INCREMENTAL"])
def test_a_connection_that_is_cut_is_tried_again(
    shop: Database, tmp_path: Path, method: str
) -> None:
    runs = Runs(tmp_path, shop, password=PASSWORD, retries=3, fetch_size=50, exclude=["*"])
    stream = {
        "name": "orders",
        "format": "jdbc",
        # Slow and of several fetches, so that the connection is still at work when it is cut.
        "query": "select *, repeat('x', 600) as pad from orders "
        f"where id <= {CUT_ROWS} and (id % 200 <> 0 or pg_sleep(0.03)::text = '')",
        "connection": "shop",
        "key_properties": ["id"],
        "replication_method": method,
    }
    if method == "INCREMENTAL":
        stream["replication_key"] = "id"
    command = runs.tap(streams=[stream])
    with (tmp_path / "log").open("wb") as log:
        tap = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=tmp_path)
        assert tap.stdout is not None
        lines: list[bytes] = []
        cut = 0
        for line in tap.stdout:
            lines.append(line)
            if not cut and line.startswith(b'{"type":"RECORD"'):
                cut = len(shop.run(CUT).splitlines())
        assert tap.wait(60) == 0, (tmp_path / "log").read_text()
    text = (tmp_path / "log").read_text()
    assert cut > 0
    assert "retrying in" in text
    assert "Traceback" not in text
    sent = [json.loads(line) for line in lines]
    versions = [m["version"] for m in sent if m["type"] == "ACTIVATE_VERSION"]
    last = versions[-1] if versions else None
    ids = {
        m["record"]["id"]
        for m in sent
        if m["type"] == "RECORD" and (last is None or m["version"] == last)
    }
    assert len(ids) == CUT_ROWS
    assert sent[-1]["type"] == "STATE"


CUT = """
select pg_terminate_backend(pid) from pg_stat_activity
where query like '%orders%' and backend_type = 'client backend' and pid <> pg_backend_pid()
"""
