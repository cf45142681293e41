"""Rows that a database refuses are rejected records, found by splitting their flush."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from case_matrix import matrix
from database_loads import MARIADB_PASSWORD, PASSWORD, PG, MariaDb
from engines import threads
from whole_runs import run_target

from shared.cli import documented_error
from shared.errors import DestinationError, RecordError
from target_spark.config import target_config
from target_spark.load.loader import Loader
from target_spark.load.mapped_loader import MappedLoader

pytestmark = [pytest.mark.server, pytest.mark.costly]
Db = PG | MariaDb
Run = Callable[..., list[Any]]
DATABASES = ["pg", "maria", "mysql"]
LEAVE_OUT = {"failure": {"policy": "LogAndContinue"}}
TEXT, INTEGER = {"type": ["null", "string"]}, {"type": ["null", "integer"]}
SECRET = "hunter2"


def schema(value: dict[str, Any] = TEXT, *keys: str, stream: str = "t") -> dict[str, Any]:
    properties = {"id": {"type": "integer"}, "v": value}
    described = {"properties": properties, "required": ["id"]}
    return {"type": "SCHEMA", "stream": stream, "schema": described, "key_properties": list(keys)}


def record(number: int, value: Any = None, stream: str = "t") -> dict[str, Any]:
    return {"type": "RECORD", "stream": stream, "record": {"id": number, "v": value}}


def state(number: int) -> dict[str, Any]:
    return {"type": "STATE", "value": number}


def settings_of(db: Db, **more: Any) -> dict[str, Any]:
    user = ("postgres", PASSWORD) if isinstance(db, PG) else ("tester", MARIADB_PASSWORD)
    url = db.database.url if isinstance(db, PG) else db.server.url()
    jdbc = {"url": url, "user": user[0], "password": user[1]}
    return {"format": "jdbc", "jdbc": jdbc, "add_record_metadata": False, **more}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs the target without Spark, and returns the values of STATE."""

    def run(db: Db, *messages: dict[str, Any], **more: Any) -> list[Any]:
        config = target_config(settings_of(db, **more))
        engine = threads()
        kind = MappedLoader if config.transforms.active else Loader
        with closing(kind(config, engine)) as loader:
            states.clear()
            states.extend(_States(run_target(config, loader, tmp_path, messages)))
        return list(states)

    states: list[Any] = []
    return run


class _States(list[Any]):
    def __init__(self, lines: Sequence[bytes]) -> None:
        super().__init__(map(json.loads, lines))


def ids(db: Db, table: str = "t") -> list[str]:
    return [row[0] for row in db.table(f"select id from {table} order by id")]


RULES = {
    "too long": ("id bigint, v varchar(3)", TEXT, "four", "property 'v'"),
    "check": ("id bigint, v bigint, constraint small check (v < 5)", INTEGER, 7, "'small'"),
    "unique": ("id bigint, v varchar(9) unique", TEXT, "1", "unique"),
    "clock": ("id bigint, v time(6)", TEXT, "10:11:12+02:00", "property 'v'"),
}


@pytest.mark.parametrize(("db", "rule"), matrix(DATABASES, [*RULES]), indirect=["db"])
def test_a_refused_row_is_a_rejected_record(
    db: Db, run: Run, caplog: pytest.LogCaptureFixture, rule: str
):
    columns, kind, bad, named = RULES[rule]
    db.run(f"create table t ({columns})")
    good = (lambda n: n) if kind is INTEGER else str
    good = (lambda n: f"10:00:0{n}") if rule == "clock" else good
    messages = [record(n, good(n)) for n in range(5)]
    messages[3] = record(3, bad)
    actual = run(db, schema(kind), *messages, state(1), **LEAVE_OUT)
    assert actual == [1]
    assert ids(db) == ["0", "1", "2", "4"]
    lines = [text for text in caplog.messages if "rejected" in text]
    assert lines[0].startswith("stream 't', line 5: rejected: ") and named in lines[0]
    assert not (isinstance(bad, str) and f"'{bad}'" in caplog.text)


@pytest.mark.parametrize("method", ["append-only", "upsert"])
def test_a_row_that_a_policy_forbids_is_a_rejected_record(pg: PG, run: Run, method: str):
    pg.run("drop role if exists guest; create role guest login password 'guest'")
    try:
        pg.run(
            "create table t (id bigint primary key, v text); insert into t values (1, 'old');"
            "alter table t enable row level security; create policy p on t using (id <> 3);"
            "grant all on t to guest; grant create, usage on schema public to guest"
        )
        jdbc = {"url": pg.database.url, "user": "guest", "password": "guest"}
        rows = [record(n, "new") for n in (2, 3, 4)]
        run(pg, schema(TEXT, "id"), *rows, state(1), load_method=method, jdbc=jdbc, **LEAVE_OUT)
        assert ids(pg) == ["1", "2", "4"]
    finally:
        pg.run("drop owned by guest; drop role guest")


def test_rows_and_state_before_a_refused_row_go_out(db: Db, run: Run, tmp_path: Path):
    db.run("create table t (id bigint, v varchar(3))")
    messages = [record(1, "a"), state(1), record(2, "b"), state(2), record(3, SECRET), state(3)]
    more = [record(4, "d"), state(4)]
    with pytest.raises(RecordError) as caught:
        run(db, schema(), *messages, *more)
    text = str(caught.value)
    assert text.startswith("stream 't', line 6: property 'v': the value is too long")
    assert SECRET not in text
    assert ids(db) == ["1", "2"]


def test_refused_rows_of_an_upsert(db: Db, run: Run):
    db.run("create table t (id bigint primary key, v varchar(3)); insert into t values (1, 'old')")
    rows = [record(1, "new"), record(2, "long value"), record(3, "c"), record(3, "longer")]
    run(db, schema(TEXT, "id"), *rows, state(1), load_method="upsert", **LEAVE_OUT)
    assert db.table("select id, v from t order by id") == [("1", "new"), ("3", "c")]


def test_dead_letters_keep_the_refused_record(db: Db, run: Run, tmp_path: Path):
    db.run("create table t (id bigint, v varchar(3))")
    failure = {"policy": "SendToDLQ", "dead_letter_path": str(tmp_path / "letters")}
    assert run(db, schema(), record(1, "a"), record(2, SECRET), state(1), failure=failure) == [1]
    (path,) = (tmp_path / "letters").glob("*.jsonl")
    letter = json.loads(path.read_text().splitlines()[1])
    assert letter["record"] == {"id": 2, "v": SECRET}
    assert letter["_sdc_error"]["line"] == 3
    assert letter["_sdc_error"]["reason"].startswith("property 'v': the value is too long")
    assert ids(db) == ["1"]


@pytest.mark.parametrize(
    ("db", "policy"), matrix(DATABASES, ["FailBatch", "LogAndContinue"]), indirect=["db"]
)
def test_rows_of_batch_files(db: Db, run: Run, tmp_path: Path, policy: str):
    db.run("create table t (id bigint, v varchar(3))")
    files = []
    for number, value in enumerate(["a", SECRET, "c"]):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(f'{{"id": {number + 10}, "v": "x"}}\n{{"id": {number}, "v": "{value}"}}\n')
        files.append(path)
    messages = [schema()]
    for number, path in enumerate(files):
        encoding = {"format": "jsonl", "compression": "none"}
        manifest = [path.as_uri()]
        messages.append(
            {"type": "BATCH", "stream": "t", "encoding": encoding, "manifest": manifest}
        )
        messages.append(state(number))
    if policy == "LogAndContinue":
        assert run(db, *messages, **LEAVE_OUT) == [2]
        assert ids(db) == ["0", "2", "10", "11", "12"]
        return
    with pytest.raises(RecordError) as caught:
        run(db, *messages)
    assert str(caught.value).startswith(f"stream 't', file '{files[1]}', line 2: property 'v'")
    assert ids(db) == ["0", "10"]


def test_many_refused_rows(db: Db, run: Run):
    db.run("create table t (id bigint, v varchar(3))")
    rows = [record(n, "long value" if n % 7 == 0 else "a") for n in range(500)]
    run(db, schema(), *rows, state(1), **LEAVE_OUT, staging={"file_bytes": 4096})
    assert len(ids(db)) == 500 - 72


def test_mapped_rows_are_refused_by_their_record(db: Db, run: Run, caplog):
    db.run("create table t (id bigint, v varchar(3))")
    maps = {"t": {"v": "v + '!'"}}
    run(db, schema(), record(1, "a"), record(2, "abc"), state(1), stream_maps=maps, **LEAVE_OUT)
    assert db.table("select id, v from t") == [("1", "a!")]
    assert "stream 't', line 3: rejected: property 'v'" in caplog.text


def test_foreign_keys_and_enums(pg: PG, run: Run, caplog):
    pg.run(
        "create table parents (id bigint primary key); insert into parents values (1);"
        "create type mood as enum ('sad', 'glad');"
        "create table t (id bigint references parents deferrable initially deferred, v mood)"
    )
    rows = [record(1, "sad"), record(2, "sad"), record(1, SECRET), record(1, "glad")]
    run(pg, schema(), *rows, state(1), **LEAVE_OUT)
    assert pg.table("select id, v from t order by v") == [("1", "sad"), ("1", "glad")]
    assert "line 3: rejected: the row that the record refers to is missing" in caplog.text
    assert "line 4: rejected: property 'v': the text is no value of its column's type" in (
        caplog.text
    )
    assert SECRET not in caplog.text


def test_a_trigger_refuses_a_row(pg: PG, run: Run, caplog):
    pg.run(
        "create table t (id bigint, v text); create function f() returns trigger language plpgsql "
        "as $$ begin if new.id = 2 then raise exception 'no %', new.v; end if; return new; end $$;"
        "create trigger g before insert on t for each row execute function f()"
    )
    run(pg, schema(), record(1, "a"), record(2, SECRET), record(3, "c"), state(1), **LEAVE_OUT)
    assert ids(pg) == ["1", "3"]
    assert "line 3: rejected: a trigger of the table refuses the row" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("kind", [TEXT, {"type": "object", "properties": {"a": TEXT}}], ids=str)
def test_a_nul_in_text_and_json(pg: PG, run: Run, kind: dict[str, Any], caplog):
    def value(text: str) -> Any:
        return text if kind is TEXT else {"a": text}

    rows = [record(1, value("a")), record(2, value("b\0c")), record(3, value("d"))]
    run(pg, schema(kind), *rows, state(1), **LEAVE_OUT)
    assert ids(pg) == ["1", "3"]
    assert "line 3: rejected: property 'v': the text contains a NUL character" in caplog.text


def test_what_is_no_fault_of_a_row_stays_a_failure(pg: PG, run: Run):
    pg.run("create table t (id bigint, v text); create function f() returns trigger language "
           "plpgsql as $$ begin raise exception using errcode = '53100'; end $$;"
           "create trigger g before insert on t for each row execute function f()")  # fmt: skip
    with pytest.raises(Exception, match="53100") as caught:
        run(pg, schema(), record(1, "a"), state(1), **LEAVE_OUT)
    assert getattr(caught.value, "exit_code", None) == 6


@pytest.mark.parametrize("kind", ["object", "array"])
@pytest.mark.parametrize("stored", ["json", "jsonb"])
def test_objects_and_arrays_go_into_json_columns_of_others(
    pg: PG, run: Run, kind: str, stored: str
):
    """Other Singer targets create such columns; without properties ours would create text."""
    pg.run(f"create table t (id bigint, v {stored})")
    value: Any = {"a": [1, "x"], "b": None} if kind == "object" else [1.5, {"a": "b"}]
    run(pg, schema({"type": ["null", kind]}), record(1, value), record(2), state(1))
    [(one,), (two,)] = pg.table("select v from t order by id")
    assert (json.loads(one), two) == (value, "")
    assert pg.table("select count(*) from pg_attribute where attrelid = 't'::regclass and "
                    "attnum > 0") == [("2",)]  # fmt: skip


@pytest.mark.parametrize("when", ["", "deferrable initially deferred"])
def test_an_overwrite_whose_row_refers_to_none_is_a_refused_row(pg: PG, run: Run, when: str):
    pg.run(f"create table p (id int primary key); create table t (id bigint, v int references p"
           f" {when}); insert into t values (7, null)")  # fmt: skip
    with pytest.raises(RecordError, match="foreign key 't_v_fkey'"):
        run(pg, schema(INTEGER), record(1, 5), state(1), load_method="overwrite")
    assert ids(pg) == ["7"]


@pytest.mark.parametrize("when", ["", "deferrable initially deferred"])
def test_an_overwrite_of_a_row_that_others_refer_to_is_no_fault_of_a_record(
    pg: PG, run: Run, when: str
):
    pg.run("create table t (id bigint primary key, v int); insert into t values (7, 1);"
           f"create table c (t bigint references t {when}); insert into c values (7)")  # fmt: skip
    with pytest.raises(DestinationError, match="load it with 'upsert'") as caught:
        run(pg, schema(INTEGER), record(1, 5), state(1), load_method="overwrite")
    assert getattr(documented_error(caught.value), "exit_code", None) == 2
    assert ids(pg) == ["7"]


def test_a_key_that_its_index_cannot_hold(pg: PG, run: Run, caplog):
    long = "".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(200))
    rows = [record(n, v) for n, v in enumerate(("a", long, "b"))]
    key = schema({"type": "string"}, "v")
    with pytest.raises(RecordError, match=r"line 3: the row, or what an index holds of it"):
        run(pg, key, *rows, state(1), load_method="upsert")
    assert run(pg, key, *rows, state(1), load_method="upsert", **LEAVE_OUT) == [1]
    assert pg.table("select id, v from t order by id") == [("0", "a"), ("2", "b")]
