"""Records that other targets have failed at: through the target's core into each destination."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from case_matrix import matrix
from model_stores import DeltaStore, IcebergStore, PostgresStore, Store
from mysql_servers import PASSWORD as MARIADB_PASSWORD
from mysql_servers import MariaDbServer
from table_files import check_data_files
from whole_runs import run_target

from shared.engine.engine import Engine
from target_spark.config import target_config
from target_spark.destinations.lakes.delta.delta_log import FORBIDDEN
from target_spark.load.loader import Loader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Rows = list[dict[str, Any]]
TEXT = {"type": ["string", "null"]}
WHOLE = {"type": ["integer", "null"]}
MARK = {"type": ["string", "null"], "format": "date-time"}
PLACES = ("delta", "iceberg", "postgresql", "mariadb")
# Both lakes have the same statements here.
ONE_LAKE = ("delta", pytest.param("iceberg", marks=pytest.mark.slow), "postgresql", "mariadb")
DELETED, NOON = "_sdc_deleted_at", "2024-01-01T12:00:00Z"
ODD_NAMES = ["it's", 'a "key"', "a`b", "x,y;--", "100%", "\\n", "{b}[c](d)", "ключ $1"]
ODD_VALUES = [
    "'", '"', "`", "\\", "''", "\\'", "%s", "%(x)s", "${spark.master}", ";--", "a\nb", "a\tb",
    ",", "NULL", "\\N", "", " ", "a ", "{0}", "é", "\U0001f600", "/*", "x" * 150,
]  # fmt: skip


class MariaStore:
    """Tables of MariaDB, read by its client."""

    name = "mariadb"

    def __init__(self, server: MariaDbServer) -> None:
        server.run("drop database tests; create database tests character set utf8mb4", "mysql")
        server.run("grant all on *.* to tester@'127.0.0.1'", "mysql")
        self._server = server

    def settings(self, number: int) -> dict[str, Any]:
        url = f"jdbc:mariadb://127.0.0.1:{self._server.port}/tests"
        jdbc = {"url": url, "user": "tester", "password": MARIADB_PASSWORD}
        return {"format": "jdbc", "jdbc": jdbc}

    def rows(self, number: int, table: str) -> Rows | None:
        columns = self._server.run(
            "select column_name from information_schema.columns where table_schema = 'tests' "
            f"and table_name = '{table}' order by ordinal_position"
        ).splitlines()
        names = [_unescaped(name) for name in columns]
        pairs = ", ".join(f"{_quoted(name)}, `{name.replace('`', '``')}`" for name in names)
        actual = self._server.run(f"select hex(json_object({pairs})) from `{table}`")
        return [json.loads(bytes.fromhex(line)) for line in actual.splitlines()]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _unescaped(text: str) -> str:
    """Return a text as the client prints it: backslashes are doubled there."""
    return text.replace("\\\\", "\\")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path, lake_spark: SparkSession) -> Any:
    """Each destination in turn."""
    if request.param == "delta":
        return DeltaStore(tmp_path, lake_spark)
    if request.param == "iceberg":
        return IcebergStore(tmp_path)
    if request.param == "mariadb":
        return MariaStore(request.getfixturevalue("mariadb_server"))
    database = request.getfixturevalue("postgres")
    database.run("drop schema if exists s0 cascade")
    return PostgresStore(database)


@pytest.fixture
def run(place: Store, tmp_path: Path, lake_spark: SparkSession) -> Callable[..., None]:
    """Run the target once over messages, all of which are one flush if nothing cuts it."""

    def run(*messages: dict[str, Any], **settings: Any) -> None:
        config = target_config({**place.settings(0), **settings})
        lines = [*messages, {"type": "STATE", "value": 1}]
        written = run_target(config, Loader(config, Engine.of(lambda: lake_spark)), tmp_path, lines)
        assert written == [b"1\n"]
        if place.name in {"delta", "iceberg"}:
            check_data_files(tmp_path)

    return run


def schema(properties: dict[str, Any], *keys: str) -> dict[str, Any]:
    described = {"type": "object", "properties": properties, "required": list(keys)}
    return {"type": "SCHEMA", "stream": "t", "schema": described, "key_properties": list(keys)}


def record(**values: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": "t", "record": values}


def stored(place: Store, *columns: str) -> list[tuple[Any, ...]]:
    rows = [tuple(row.get(name) for name in columns) for row in place.rows(0, "t") or []]
    return sorted(rows, key=repr)


@pytest.mark.parametrize(("place", "is_told"), matrix(PLACES, [True, False]), indirect=["place"])
def test_deletions_of_one_flush(place: Store, run: Callable[..., None], is_told: bool) -> None:
    """Marked, with a null for the mark, and without one: keys that are there, new and unknown."""
    properties = {"id": {"type": "integer"}, "x": TEXT, **({DELETED: MARK} if is_told else {})}
    head = schema(properties, "id")
    settings = {"load_method": "upsert", "hard_delete": True}
    run(head, *(record(id=n, x="old") for n in range(1, 6)), **settings)
    run(
        head,
        record(id=1, **{DELETED: NOON}),
        record(id=2, x="new", **{DELETED: None}),
        record(id=3, x="new"),
        # Inserted and deleted, deleted and inserted again.
        record(id=6, x="new", **{DELETED: None}),
        record(id=6, x="new", **{DELETED: NOON}),
        record(id=4, **{DELETED: NOON}),
        record(id=4, x="back"),
        # Never there.
        record(id=7, **{DELETED: NOON}),
        **settings,
    )
    assert stored(place, "id", "x") == [(2, "new"), (3, "new"), (4, "back"), (5, "old")]
    run(head, record(id=7, **{DELETED: NOON}), **settings)
    assert len(stored(place, "id")) == 4


@pytest.mark.parametrize("place", ONE_LAKE, indirect=True)
def test_marks_of_deletion_are_kept(place: Store, run: Callable[..., None]) -> None:
    head = schema({"id": {"type": "integer"}, "x": TEXT}, "id")
    run(head, record(id=1, x="a"), record(id=2, x="b"), load_method="upsert")
    run(
        head,
        record(id=1, x="a", **{DELETED: NOON}),
        record(id=2, x="b", **{DELETED: None}),
        record(id=3, x="c", **{DELETED: NOON}),
        load_method="upsert",
    )
    actual = [(n, x, mark is not None) for n, x, mark in stored(place, "id", "x", DELETED)]
    assert actual == [(1, "a", True), (2, "b", False), (3, "c", True)]
    # A record without the mark is no longer deleted.
    run(head, record(id=1, x="back"), load_method="upsert")
    assert stored(place, "id", DELETED)[0] == (1, None)


def test_names_and_keys_full_of_punctuation(place: Store, run: Callable[..., None]) -> None:
    keys, others = ODD_NAMES[:4], ODD_NAMES[4:]
    head = schema(dict.fromkeys(ODD_NAMES, TEXT), *keys)
    settings = {"load_method": "upsert", "hard_delete": True}
    actual = [(value, *(f"{value[:20]}{n}" for n in range(3))) for value in ODD_VALUES]
    first = [dict(zip(keys, values, strict=True)) for values in actual]
    run(head, *(record(**row, **dict.fromkeys(others, "old")) for row in first), **settings)
    # Every second row is changed, and the others are removed.
    marks = [{DELETED: NOON}, dict.fromkeys(others, "it's;")]
    run(head, *(record(**row, **marks[n % 2]) for n, row in enumerate(first)), **settings)
    names = [_in_table(place, name) for name in ODD_NAMES]
    wanted = [(*values, *["it's;"] * len(others)) for values in actual[1::2]]
    assert stored(place, *names) == sorted(wanted, key=repr)


def _in_table(place: Store, name: str) -> str:
    """Return a column's name in the table: Delta cannot store some characters."""
    changed = FORBIDDEN if place.name == "delta" else ""
    return "".join("_" if char in changed else char for char in name)


@pytest.mark.parametrize("place", ONE_LAKE, indirect=True)
def test_several_schemas_in_one_overwrite(place: Store, run: Callable[..., None]) -> None:
    number = {"id": {"type": "integer"}}
    run(schema({**number, "old": TEXT}, "id"), record(id=9, old="x"), load_method="overwrite")
    run(
        schema({**number, "x": TEXT}, "id"),
        record(id=1, x="a"),
        record(id=2, x="b"),
        schema({**number, "x": TEXT, "y": WHOLE}, "id"),
        record(id=2, x="c", y=5),
        record(id=3, x="d", y=6),
        schema({**number, "y": {"type": ["number", "null"]}}, "id"),
        record(id=4, y=0.5),
        schema({**number, "x": TEXT}, "id"),
        record(id=1, x="last"),
        load_method="overwrite",
        type_conflicts="cast",
        add_record_metadata=False,
    )
    actual = [(n, x, None if y is None else float(y)) for n, x, y in stored(place, "id", "x", "y")]
    assert actual == [(1, "last", None), (2, "c", 5.0), (3, "d", 6.0), (4, None, 0.5)]
