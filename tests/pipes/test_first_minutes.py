"""The first minutes of a user: `init`, a look at the streams, a run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pipe_programs import TAP, TARGET, Programs
from terminals import on_one_terminal, on_terminal

pytestmark = pytest.mark.pipe


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "orders-2026-01.csv").write_text("id;name\n1;a\n2;b\n")
    (tmp_path / "data" / "orders-2026-02.csv").write_text("id;name\n3;c\n")
    (tmp_path / "data" / f"{'long_name_' * 9}.csv").write_text("x\n1\n")
    return tmp_path


def test_drafted_settings_run(folder: Path) -> None:
    programs = Programs(folder)
    for command, place, file in ((TAP, "data", "tap.yaml"), (TARGET, "loaded", "target.json")):
        created = programs.run([*command, "init", place, "-o", file])
        assert (created.returncode, created.stdout) == (0, b"")
        assert f"wrote '{file}'; next:" in created.stderr.decode()
        again = programs.run([*command, "init", place, "-o", file])
        assert (again.returncode, b"--force" in again.stderr) == (2, True)
        checked = programs.run([*command, "--config", file, "--validate-config"])
        assert checked.returncode == 0, checked.stderr.decode()
    sent = programs.run([*TAP, "--config", "tap.yaml"])
    loaded = programs.run([*TARGET, "--config", "target.json"], sent.stdout)
    assert (sent.returncode, loaded.returncode) == (0, 0), loaded.stderr.decode()
    from pyarrow import parquet

    rows = parquet.read_table(folder / "loaded" / "orders").sort_by("id").to_pylist()
    assert [(row["id"], row["name"]) for row in rows] == [(1, "a"), (2, "b"), (3, "c")]


def test_init_on_a_terminal_is_what_a_pipe_gets(folder: Path) -> None:
    command = [*TAP, "init", "data"]
    shown = on_terminal(command, folder)
    assert shown.encode() == Programs(folder).run(command).stdout
    is_path = "path:", "- name:"
    assert all(len(line) <= 80 or line.strip().startswith(is_path) for line in shown.splitlines())


def test_a_pipe_on_a_terminal_is_for_people(folder: Path) -> None:
    (folder / "orders.csv").write_text("id,name\n1,a\n2,b\n3,c\n")
    pipe = "{} orders.csv {quiet} | {} loaded --state state.json {quiet}"
    pipe = "set -o pipefail; " + pipe.format(" ".join(TAP), " ".join(TARGET), quiet="{quiet}")
    shown = on_one_terminal(pipe.format(quiet=""), folder)
    lines = re.sub(r"\x1b\[J|\r", "", re.sub(r"\d+\.\d s", "0.0 s", shown)).splitlines()
    assert lines == [
        "orders  3 rows  FULL_TABLE  423 B  0.0 s",
        "tap-spark: 3 rows sent in 0.0 s, by threads",
        "orders  3 rows  2 new columns  0 rejected  → loaded/orders (parquet)  0.0 s",
        "target-spark: 3 rows loaded in 0.0 s, by threads",
    ]
    assert json.loads((folder / "state.json").read_text())
    assert on_one_terminal(pipe.format(quiet="--quiet"), folder) == ""


def test_the_first_command_twice_leaves_the_rows_of_the_file(folder: Path) -> None:
    from pyarrow import parquet

    programs, file, table = Programs(folder), folder / "orders.csv", folder / "loaded" / "orders"
    for text in ("id,name\n1,a\n2,b\n3,c\n", "id,name\n3,c\n4,d\n5,e\n"):
        file.write_text(text)
        sent = programs.run([*TAP, "orders.csv"])
        loaded = programs.run([*TARGET, "loaded"], sent.stdout)
        assert (sent.returncode, loaded.returncode) == (0, 0), loaded.stderr.decode()
    assert b"remove 3 rows of older versions" in loaded.stderr
    assert sorted(row["id"] for row in parquet.read_table(table).to_pylist()) == [3, 4, 5]
    few = programs.run([*TAP, "orders.csv", "--limit", "1"])
    assert programs.run([*TARGET, "loaded"], few.stdout).returncode == 0
    assert parquet.read_table(table).num_rows == 4
    for _ in range(2):
        sent = programs.run([*TAP, "orders.csv"])
        assert programs.run([*TARGET, "loaded"], sent.stdout).returncode == 0
        assert sorted(row["id"] for row in parquet.read_table(table).to_pylist()) == [3, 4, 5]


def test_discovery_on_a_terminal_is_a_table(folder: Path) -> None:
    place = str(folder / "data" / "orders-*.csv")
    config = folder / "tap.json"
    streams = [
        {"name": "orders", "format": "csv", "path": place, "key_properties": ["id"],
         "options": {"sep": ";"}},
        {"name": "n" * 90, "format": "csv", "path": str(folder / "data" / "long*.csv")},
    ]  # fmt: skip
    config.write_text(json.dumps({"streams": streams}))
    command = [*TAP, "--config", str(config), "--discover"]
    lines = on_terminal(command, folder).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == [
        "stream",
        "rows",
        "columns",
        "key",
        "replication",
        "key",
        "method",
        "selected",
    ]
    assert lines[1].split() == ["orders", "~3", "2", "id", "-", "FULL_TABLE", "yes"]
    assert "nnn…" in lines[2]
    piped = Programs(folder).run(command).stdout.decode()
    assert [each["stream"] for each in json.loads(piped)["streams"]] == ["orders", "n" * 90]
    assert on_terminal([*command, "--json"], folder) == piped


def test_choosing_without_a_catalog(folder: Path) -> None:
    programs = Programs(folder)
    place = [*TAP, "preview", "data/orders-2026-02.csv"]
    assert programs.run(place).stdout == b"orders_2026_02: first 1 row(s)\nid;name\n3;c\n\n"
    created = programs.run([*TAP, "init", "data", "-o", "tap.yaml"])
    assert created.returncode == 0
    chosen = ["--config", "tap.yaml", "--select", "orders", "--key", "orders=id"]
    preview = [*TAP, "preview", "orders", "!*.name", "--rows", "1", "--config", "tap.yaml"]
    assert programs.run(preview).stdout == b"orders: first 1 row(s)\nid\n1\n\n"
    sent = programs.run([*TAP, *chosen]).stdout.splitlines()
    assert {json.loads(line).get("stream", "orders") for line in sent} == {"orders"}
    assert json.loads(sent[0])["key_properties"] == ["id"]
    wrong = programs.run([*TAP, *chosen, "--select", "ordres.*"])
    assert (wrong.returncode, wrong.stdout) == (2, b"")
    assert b"--select 'ordres.*' matches nothing (near: orders" in wrong.stderr


def test_json_is_for_discovery(folder: Path) -> None:
    result = Programs(folder).run([*TAP, "data/orders-2026-01.csv", "--json"])
    assert result.returncode == 2
    assert b"--json is for --discover" in result.stderr


def test_the_login_of_a_database_is_no_setting(folder: Path) -> None:
    programs = Programs(folder, environ={"TAP_SPARK_USER": "me", "TAP_SPARK_PASSWORD": "hush"})
    checked = programs.run([*TAP, "jdbc:postgresql://localhost/shop", "--validate-config"])
    assert checked.returncode == 0, checked.stderr.decode()
    item = {"name": "a", "url": "jdbc:postgresql://h/a", "password_variable": "TAP_SPARK_PASSWORD"}
    config = programs.write("tap", {"connections": [item]})
    command = [*TAP, "--config", config, "--validate-config"]
    assert programs.run(command).returncode == 0
    programs.environ["TAP_SPARK_PASSWORD"] = ""
    assert programs.run(command).returncode == 2
    (folder / ".env").write_text("TAP_SPARK_PASSWORD=hush\n")
    programs.environ.clear()
    assert programs.run([*command, "--config", "ENV"]).returncode == 0
