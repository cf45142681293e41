"""Tables of lakes that return to a commit, with the STATE of that moment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lake_loads import Load, struct

from shared.errors import AlreadyRunningError, DestinationError, SettingsError
from target_spark.destinations.lakes.run_files import note_file
from target_spark.operate.rewind import history_lines, plan_rewind, rewind, target_of
from target_spark.operate.table_history import shown_time
from target_spark.operate.table_maintenance import LakeTables
from target_spark.replays import Note

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., Load]
DDL = "id long, v string"


def rows(*numbers: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": number, "v": v} for number in numbers]


def state(stream: str, bookmark: int) -> str:
    return json.dumps({"bookmarks": {stream: {"next": bookmark}}}, separators=(",", ":"))


def tables(load: Load) -> LakeTables:
    return LakeTables(load.config, load.spark)


def back(load: Load, to: str, *names: str, force: bool = False) -> Any:
    text = rewind(tables(load), to, names, force=force, dry_run=False)
    assert text is not None
    return json.loads(text)["bookmarks"]


def commits(load: Load) -> int:
    return len(load.history())


@pytest.mark.parametrize("in_catalog", [False, True])
@pytest.mark.parametrize("method", ["append-only", "upsert"])
@pytest.mark.slow
def test_tables_return_to_the_end_of_a_run_and_the_load_goes_on(
    lake_load: Make, method: str, in_catalog: bool
) -> None:
    schema = f"rewind_{method[:2]}_{in_catalog}"
    supplied = {"in_catalog": in_catalog, "default_target_schema": schema} if in_catalog else {}
    a = lake_load(DDL, keys=("id",), method=method, stream="a", table="a", **supplied)
    b = a.other(stream="b", table="b")
    b.run = first = a.run
    for load in (a, b):
        load.load(rows(1, 2), rows(3), state=state(load.stream, 1))
        load.load(rows(4), state=state(load.stream, 2))
    earlier = a.rows()
    a.begin()
    a.load(rows(4, 5, v="y"), state=state("a", 3))
    later = a.rows()
    assert back(a, first[:8]) == {"a": {"next": 2}, "b": {"next": 2}}
    assert a.rows() == earlier
    a.begin()
    a.load(rows(4, 5, v="y"), state=state("a", 3))
    assert a.rows() == later
    assert b.rows() == earlier
    if in_catalog and a.config.catalog == "spark_catalog":
        b.sql("DROP TABLE {t}")


def after_two_runs(lake_load: Make) -> tuple[Load, str]:
    """Return a load whose table has a row of each of two runs, and the first run."""
    load = lake_load(DDL, stream="a", table="a")
    load.load(rows(1), state=state("a", 1))
    first = load.run
    load.begin()
    load.load(rows(2), state=state("a", 2))
    return load, first


@pytest.mark.slow
def test_other_programs_read_the_table_that_has_returned(lake_load: Make) -> None:
    load, first = after_two_runs(lake_load)
    assert back(load, first) == {"a": {"next": 1}}
    assert load.other_reader().rows == rows(1)


def test_a_repeated_rewind_changes_nothing_and_writes_the_same_state(lake_load: Make) -> None:
    load, first = after_two_runs(lake_load)
    actual = back(load, first)
    before = commits(load)
    assert back(load, first) == actual
    assert commits(load) == before
    assert back(load, load.run) == {"a": {"next": 2}}, "and forward again"
    assert load.rows() == [(1, "x"), (2, "x")]


def test_every_way_to_commit_carries_the_state(lake_load: Make) -> None:
    text = json.dumps({"bookmarks": {"a": "${spark.master} $x 'y' \\ \n \u2028 é"}})
    load = lake_load(DDL, keys=("id",), method="upsert", stream="a", table="a")
    load.load(rows(1, 2), state=text)
    load.load(rows(2, 3), rows(2), state=text)
    load.method = "append-only"
    load.load(rows(4), state=text)
    load.method = "overwrite"
    load.load(rows(5), state=None)
    load.load(rows(6), state=text)
    load.end()
    marks = [mark for mark in load.marks() if mark.number is not None]
    assert [mark.state for mark in marks] == [text] * 4
    assert [mark.rows for mark in marks] == [2, 1, 3, 2]


def test_a_column_that_an_overwrite_adds_is_no_commit_of_others(delta_load: Make) -> None:
    load = delta_load("id long not null, v string", keys=("id",), method="overwrite")
    load.load(rows(1), state=state("orders", 1))
    load.end()
    first = load.run
    load.begin()
    load.struct = struct("id long not null, v string, w date")
    load.load(rows(2), state=state("orders", 2))
    load.end()
    histories = tables(load).histories()
    assert plan_rewind(histories, target_of(first, histories)).losses == ()


@pytest.mark.slow
def test_a_time_is_one_that_history_shows(lake_load: Make) -> None:
    load = lake_load(DDL, stream="a", table="a")
    for number in (1, 2, 3):
        load.load(rows(number), state=state("a", number))
    lines = list(history_lines(tables(load), ["a"], 20, as_json=True))
    actual = [json.loads(line) for line in lines]
    assert [(one["rows"], one["run"], one["stream"]) for one in actual] == [(1, load.run, "a")] * 3
    assert [json.loads(one["state"])["bookmarks"]["a"]["next"] for one in actual] == [3, 2, 1]
    assert back(load, actual[1]["time"]) == {"a": {"next": 2}}
    shown = list(history_lines(tables(load), [], 1, as_json=False))
    assert shown[0].split() == [
        "time",
        "(UTC)",
        "table",
        "version",
        "run",
        "rows",
        *shown[0].split()[6:],
    ]
    assert shown[1].endswith('1     {"next":3}')
    assert actual[0]["version"] in shown[1]
    assert len(shown) == 2


@pytest.mark.slow
def test_commits_of_others_are_not_lost_without_consent(lake_load: Make) -> None:
    load = lake_load(DDL, stream="a", table="a")
    load.load(rows(1), state=state("a", 1))
    first = load.run
    load.sql("INSERT INTO {t} VALUES (7, 'theirs')")
    with pytest.raises(SettingsError, match="would lose 1 commits of others"):
        back(load, first)
    assert load.rows() == [(1, "x"), (7, "theirs")]
    assert back(load, first, force=True) == {"a": {"next": 1}}
    assert load.rows() == [(1, "x")]


@pytest.mark.slow
def test_compaction_is_not_a_change_of_others(lake_load: Make) -> None:
    load = lake_load(DDL, stream="a", table="a")
    load.load(rows(1), state=state("a", 1))
    first = load.run
    if load.config.format == "delta":
        load.load(rows(2), state=state("a", 2))
        load.sql("OPTIMIZE {t}")
    else:
        load.load(rows(2), state=state("a", 2))
        call = f"CALL {load.name.partition('.')[0]}.system.rewrite_data_files(table => "
        load.sql(f"{call}'{load.name}', options => map('rewrite-all', 'true'))")
    before = commits(load)
    assert back(load, first) == {"a": {"next": 2}}
    assert commits(load) == before
    load.begin()
    load.load(rows(3), state=state("a", 3))
    assert back(load, first) == {"a": {"next": 2}}
    assert load.rows() == [(1, "x"), (2, "x")]


@pytest.mark.slow
def test_nothing_changes_if_one_table_cannot_return(lake_load: Make, lake: str) -> None:
    a = lake_load(DDL, stream="a", table="a", keys=("id",), method="upsert")
    b = a.other(stream="b", table="b")
    for load in (a, b):
        load.load(rows(1), state=state(load.stream, 1))
    first = shown_time(tables(a).histories()[1].newest.at)
    for load in (a, b):
        load.begin()
        load.load(rows(1, v="y"), state=state(load.stream, 2))
    if lake == "delta":
        b.sql("VACUUM {t}")  # Keeps what is younger than seven days.
        kept = {Path(path[0]).name for path in b.sql("SELECT DISTINCT input_file_name() FROM {t}")}
        folder = Path(b.config.path) / "b"
        gone = [path for path in folder.glob("*.parquet") if path.name not in kept]
        assert gone
        for path in gone:
            path.unlink()
        why = "1 files of it are gone"
    else:
        at = "TIMESTAMP '2999-01-01'"
        call = f"CALL {b.name.partition('.')[0]}.system.expire_snapshots(table => '{b.name}', "
        b.sql(f"{call}older_than => {at})")
        why = "are gone"
    before = commits(a)
    with pytest.raises(DestinationError, match=f"nothing was changed: .*'b'.*{why}|{why}"):
        back(a, first)
    assert commits(a) == before
    assert a.rows() == [(1, "y")]
    assert back(a, first, "a") == {"a": {"next": 1}, "b": {"next": 2}}
    assert a.rows() == [(1, "x")]


def test_a_table_that_changes_meanwhile_is_left_alone(lake_load: Make) -> None:
    load = lake_load(DDL, stream="a", table="a")
    load.load(rows(1), state=state("a", 1))
    load.load(rows(2), state=state("a", 2))
    (stale,) = tables(load).histories()
    load.load(rows(3), state=state("a", 3))
    target = next(commit for commit in stale.created if commit.mark is not None)
    with pytest.raises(DestinationError, match="has changed meanwhile"):
        tables(load).restore(stale, target)
    assert len(load.rows()) == 3


@pytest.mark.parametrize("in_catalog", [False, True])
@pytest.mark.slow
def test_the_note_of_a_killed_run_is_void(lake_load: Make, in_catalog: bool) -> None:
    load = lake_load(DDL, stream="a", table=f"a_{in_catalog}", in_catalog=in_catalog)
    for number in (1, 2, 3):
        load.load(rows(number), noted=True, state=state("a", number))
    left = frozenset(load.noted)
    load.begin()
    assert load.recall() == left, "it would be adopted"
    load.begin()
    actual = [json.loads(line) for line in history_lines(tables(load), [], 9, as_json=True)]
    own = [one for one in actual if one["table"].lower().endswith(load.table.lower())]
    assert back(load, own[1]["time"], own[1]["table"])["a"] == {"next": 2}
    assert (
        note_file(load.config, load.destination._form.place(load.request.name), "a").take()
        == Note()
    )
    load.begin()
    assert load.recall() == frozenset()


def test_without_removal_a_restored_delta_table_voids_the_note(delta_load: Make) -> None:
    load = delta_load(DDL, stream="a", table="a")
    load.load(rows(1), noted=True)
    load.load(rows(2), noted=True)
    load.sql("RESTORE TABLE {t} TO VERSION AS OF 1")
    load.begin()
    assert load.recall() == frozenset()


def test_a_dry_run_changes_nothing(lake_load: Make) -> None:
    load, first = after_two_runs(lake_load)
    assert rewind(tables(load), first, (), force=False, dry_run=True) is None
    assert len(load.rows()) == 2
    with pytest.raises(SettingsError, match="'zz' is not one of the tables of target-spark: a"):
        rewind(tables(load), first, ("zz",), force=False, dry_run=True)


@pytest.mark.slow
def test_tables_in_folders_of_schemas_are_found_and_others_are_not(
    lake_load: Make, tmp_path: Path
) -> None:
    load = lake_load(DDL, stream="a", table="a", default_target_schema="deep")
    load.load(rows(1), state=state("a", 1))
    theirs = load.other(table="theirs")
    theirs.load(rows(1))
    (tmp_path / "lake" / "folder" / "below").mkdir(parents=True)
    theirs.sql("DROP TABLE {t}") if load.config.format == "iceberg" else None
    names = [history.name for history in tables(load).histories()]
    assert "deep.a" in names
    assert set(names) <= {"deep.a", "deep.theirs"}
    missing = load.other(config=load.config)
    missing.config = type(load.config)(format=load.config.format, path=str(tmp_path / "no"))
    with pytest.raises(DestinationError, match="cannot be listed"):
        tables(missing).histories()


def test_iceberg_does_not_return_to_columns_that_were_replaced(iceberg_load: Make) -> None:
    load = iceberg_load(DDL, stream="a", table="a", method="overwrite")
    load.load(rows(1), state=state("a", 1))
    load.end()
    first = load.run
    load.begin()
    load.struct = struct("id long, v string, more long")
    load.load([{"id": 1, "v": "x", "more": 2}], state=state("a", 2))
    load.end()
    assert back(load, first) == {"a": {"next": 1}}
    assert load.rows() == [(1, "x", None)]
    load.begin()
    load.struct = struct("id long, v long")
    load.load([{"id": 1, "v": 2}], state=state("a", 2))
    load.end()
    with pytest.raises(DestinationError, match="its column 'v' was dropped or replaced"):
        back(load, first)


def test_a_table_that_is_being_loaded_is_left_alone(delta_load: Make) -> None:
    load, first = after_two_runs(delta_load)
    before = load.rows()
    lease = load.destination.lease(load.request)
    assert lease.take() is None
    with pytest.raises(AlreadyRunningError, match="stream 'a': another run"):
        back(load, first)
    assert load.rows() == before
    lease.release()
