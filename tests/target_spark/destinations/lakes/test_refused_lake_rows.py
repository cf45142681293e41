"""Rows that break a rule of a lake's table are rejected records; what was good is committed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from engines import IdleSpark, threads
from lake_loads import Load
from whole_runs import run_target

from shared.engine.engine import Engine
from shared.errors import RecordError
from target_spark.config import target_config
from target_spark.load.loader import Loader

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., Load]
SECRET = "hunter2"
LEAVE_OUT = {"policy": "LogAndContinue"}
NULLABLE = {"type": ["null", "string"]}
ADDRESS = {"type": ["null", "object"], "properties": {"zip": NULLABLE, "n": NULLABLE}}

RULES = {
    "delta check": ("delta", "v STRING", ["ADD CONSTRAINT short CHECK (length(v) < 4)"], SECRET,
                    "CHECK constraint 'short'"),
    "delta check of null": ("delta", "v STRING", ["ADD CONSTRAINT short CHECK (length(v) < 4)"],
                            None, "CHECK constraint 'short'"),
    "delta not null": ("delta", "v STRING NOT NULL", [], None,
                       "property 'v': the column does not take null"),
    "delta length": ("delta", "v VARCHAR(3)", [], SECRET,
                     "property 'v': the value is too long for its column (type varchar(3))"),
    "delta partition": ("delta PARTITIONED BY (v)", "v STRING", [], "",
                        "property 'v': an empty value would become null, as Delta partitions"),
    "iceberg not null": ("iceberg", "v STRING NOT NULL", [], None,
                         "property 'v': the column does not take null"),
}  # fmt: skip

BY_SPARK = ("delta check", "delta partition", "iceberg not null")


def messages(*values: Any, kind: Any = NULLABLE, keys: tuple[str, ...] = ()) -> list[Any]:
    """Return a record and a STATE for each value, with its number from 1."""
    schema = {"properties": {"id": {"type": "integer"}, "v": kind}, "required": ["id"]}
    actual = [
        {"type": "SCHEMA", "stream": "orders", "schema": schema, "key_properties": list(keys)}
    ]
    for number, value in enumerate(values, 1):
        row = value if isinstance(value, dict) and "id" in value else {"id": number, "v": value}
        actual.append({"type": "RECORD", "stream": "orders", "record": row})
        actual.append({"type": "STATE", "value": number})
    return actual


class Session(IdleSpark):
    """A Spark that is up only for those who wait for it."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def get(self) -> Any:  # type: ignore[override]
        return self._spark

    def context(self) -> None:  # type: ignore[override]
        """Return that work takes the session."""


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., list[Any]]:
    """Return a function that runs the target into a table, and returns the values of STATE."""

    def run(load: Load, lines: list[Any], **more: Any) -> list[Any]:
        place = {"format": load.config.format, "path": load.config.path}
        config = target_config({**place, "add_record_metadata": False, **more})
        by_threads = getattr(request, "param", "threads") == "threads"
        starter = Session(load.spark)
        engine = threads(starter) if by_threads else Engine.of(starter.get)
        actual.clear()
        loader = Loader(config, engine)
        with closing(loader):
            actual.extend(map(json.loads, run_target(config, loader, tmp_path, lines)))
        return actual

    actual: list[Any] = []
    return run


def created(make: Make, form: str, columns: str, after: list[str] | tuple[str, ...] = ()) -> Load:
    load = make(form.partition(" ")[0], "id long")
    load.sql(f"CREATE TABLE {{t}} (id BIGINT, {columns}) USING {form}")
    for action in after:
        load.sql(f"ALTER TABLE {{t}} {action}")
    return load


@pytest.mark.parametrize(
    ("rule", "run"),
    [*((rule, "threads") for rule in RULES), *((rule, "Spark") for rule in BY_SPARK)],
    indirect=["run"],
)
def test_a_refused_row_is_left_out(
    any_load: Make, run: Callable[..., Any], caplog: pytest.LogCaptureFixture, rule: str
) -> None:
    form, columns, after, bad, reason = RULES[rule]
    load = created(any_load, form, columns, after)
    assert run(load, messages("a", bad, "c"), failure=LEAVE_OUT) == [3]
    assert load.rows() == [(1, "a"), (3, "c")]
    (line,) = [text for text in caplog.messages if ": rejected: " in text]
    assert line.startswith("stream 'orders', line 4: rejected: ")
    assert reason in line
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "rule",
    [*BY_SPARK, pytest.param("delta not null", marks=pytest.mark.slow)],
)
def test_rows_and_state_before_a_refused_row_go_out(
    any_load: Make, run: Callable[..., Any], rule: str
) -> None:
    form, columns, after, bad, reason = RULES[rule]
    load = created(any_load, form, columns, after)
    with pytest.raises(RecordError) as caught:
        run(load, messages("a", "b", bad, "d"))
    assert str(caught.value).startswith("stream 'orders', line 6: ")
    assert reason in str(caught.value)
    assert caught.value.exit_code == 5
    assert load.rows() == [(1, "a"), (2, "b")]


def test_dead_letters_keep_the_record(
    any_load: Make, run: Callable[..., Any], tmp_path: Path
) -> None:
    load = created(any_load, *RULES["delta check"][:3])
    failure = {"policy": "SendToDLQ", "dead_letter_path": str(tmp_path / "letters")}
    assert run(load, messages("a", SECRET), failure=failure) == [2]
    (path,) = (tmp_path / "letters").glob("*.jsonl")
    letter = json.loads(path.read_text().splitlines()[1])
    assert (letter["record"], letter["_sdc_error"]["line"]) == ({"id": 2, "v": SECRET}, 4)


@pytest.mark.parametrize("rule", [*BY_SPARK, "delta not null"])
def test_refused_rows_of_an_upsert(any_load: Make, run: Callable[..., Any], rule: str) -> None:
    form, columns, after, bad, _ = RULES[rule]
    load = created(any_load, form, columns, after)
    load.sql("INSERT INTO {t} VALUES (1, 'old'), (2, 'old')")
    rows = [{"id": 1, "v": "new"}, {"id": 2, "v": bad}, {"id": 3, "v": bad}, {"id": 4, "v": "d"}]
    lines = messages(*rows, keys=("id",))
    assert run(load, lines, load_method="upsert", failure=LEAVE_OUT) == [4]
    assert load.rows() == [(1, "new"), (2, "old"), (4, "d")]


def test_a_condition_over_columns_that_an_upsert_does_not_set(
    delta_load: Make, run: Callable[..., Any]
) -> None:
    load = delta_load("id long")
    load.sql(
        "CREATE TABLE {t} (id BIGINT, v STRING, most INT DEFAULT 3) USING delta "
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    load.sql("ALTER TABLE {t} ADD CONSTRAINT short CHECK (length(v) <= most)")
    load.sql("INSERT INTO {t} VALUES (1, 'a', 9), (2, 'b', 2)")
    rows = [{"id": 1, "v": "long"}, {"id": 2, "v": "long"}, {"id": 3, "v": "abc"}]
    lines = messages(*rows, {"id": 4, "v": "long"}, keys=("id",))
    assert run(load, lines, load_method="upsert", failure=LEAVE_OUT) == [4]
    assert load.rows() == [(1, "long", 9), (2, "b", 2), (3, "abc", 3)]


@pytest.mark.parametrize("lake", ["iceberg", "delta"])
def test_fields_inside_of_columns(
    any_load: Make, run: Callable[..., Any], lake: str, caplog: pytest.LogCaptureFixture
) -> None:
    load = created(any_load, lake, "v STRUCT<zip: STRING NOT NULL, n: STRING>")
    lines = messages({"zip": "1", "n": "x"}, {"zip": None, "n": "x"}, kind=ADDRESS)
    assert run(load, lines, failure=LEAVE_OUT) == [2]
    assert [row[0] for row in load.rows("id")] == [1]
    assert "line 4: rejected: property 'v': the column does not take null" in caplog.text


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("delta check", "CHECK constraint short$"),
        ("delta partition", r"column 'v': an empty value would .*partition\)$"),
    ],
)
def test_an_overwrite_that_a_table_refuses_changes_nothing(
    any_load: Make, run: Callable[..., Any], rule: str, reason: str
) -> None:
    load = created(any_load, *RULES[rule][:3])
    load.sql("INSERT INTO {t} VALUES (7, 'old')")
    with pytest.raises(RecordError, match=f"breaks a rule of the table: {reason}"):
        run(load, messages("a", RULES[rule][3]), load_method="overwrite")
    assert load.rows() == [(7, "old")]


@pytest.mark.parametrize(
    ("lake", "method"),
    [("delta", "upsert"), ("delta", "history"), ("delta", "overwrite"), ("iceberg", "upsert")],
)
def test_empty_texts_in_a_key_that_partitions_the_table(
    any_load: Make, run: Callable[..., Any], lake: str, method: str
) -> None:
    load = any_load(lake, "id long")
    lines = messages("DE", "", keys=("id", "v"))
    lines[0]["schema"]["properties"]["v"] = {"type": "string"}
    if lake == "delta":
        deletion = {"id": 2, "v": "", "_sdc_deleted_at": "2026-01-01T00:00:00Z"}
        lines.insert(4, {**lines[3], "record": deletion})
    settings = {"hard_delete": method != "history", "add_record_metadata": True}
    for _ in range(2):
        more = {**settings, "load_method": method, "partition_by": ["v"]}
        assert run(load, lines, failure=LEAVE_OUT, **more) == [2]
    assert load.rows("id", "v") == [(1, "DE"), *([] if lake == "delta" else [(2, "")])]


COMPUTED = (
    "CREATE TABLE {t} (id BIGINT, v STRING, twice BIGINT GENERATED ALWAYS AS (id * 2), "
    "n BIGINT GENERATED ALWAYS AS IDENTITY, m BIGINT GENERATED BY DEFAULT AS IDENTITY, "
    "d STRING DEFAULT 'x') USING delta "
    "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
)


@pytest.mark.parametrize("method", ["append-only", "upsert", "overwrite"])
def test_columns_that_a_table_computes(
    delta_load: Make, run: Callable[..., Any], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    load = delta_load("id long")
    load.sql(COMPUTED)
    before = load.sql("DESCRIBE DETAIL {t}")[0]
    lines = messages("a", "b", keys=() if method == "append-only" else ("id",))
    lines[0]["schema"]["properties"]["twice"] = {"type": ["null", "integer"]}
    lines[1]["record"]["twice"] = 99
    run(load, lines, load_method=method)
    actual = load.rows("id", "v", "twice", "d")
    assert actual == [(1, "a", 2, "x"), (2, "b", 4, "x")]
    assert len({row for row in load.rows("n", "m") if None not in row}) == 2
    ignored = [text for text in caplog.messages if "values of 'twice' are ignored" in text]
    assert len(ignored) == 1
    after = load.sql("DESCRIBE DETAIL {t}")[0]
    assert (after.tableFeatures, after.minWriterVersion) == (
        before.tableFeatures, before.minWriterVersion,
    )  # fmt: skip


def test_an_overwrite_keeps_conditions_that_others_add(
    delta_load: Make, run: Callable[..., Any]
) -> None:
    load = delta_load("id long")
    run(load, messages("a"), load_method="overwrite")
    load.sql("ALTER TABLE {t} ADD CONSTRAINT short CHECK (length(v) < 4)")
    lines = messages("b")
    lines[0]["schema"]["properties"]["more"] = NULLABLE
    run(load, lines, load_method="overwrite")
    assert load.rows() == [(1, "b", None)]
    assert "delta.constraints.short" in load.properties()


def test_a_key_that_the_table_computes(delta_load: Make, run: Callable[..., Any]) -> None:
    load = delta_load("id long")
    load.sql("CREATE TABLE {t} (v STRING, id BIGINT GENERATED ALWAYS AS IDENTITY) USING delta")
    with pytest.raises(Exception, match="the key 'id' is a generated column") as caught:
        run(load, messages("a", keys=("id",)), load_method="upsert")
    assert getattr(caught.value, "exit_code", None) == 2
