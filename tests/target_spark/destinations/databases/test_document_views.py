"""Tables that keep the record in one column, and the typed view over it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from database_loads import PG, Loads, MariaDb, request, struct_of

from shared.errors import DestinationError, SettingsError
from target_spark.convert.stream_tables import as_document
from target_spark.destinations.databases.table_work import TableWork

pytestmark = pytest.mark.server
NewLoads = Callable[..., Loads]
OWN = (
    "id int!, s string, i long, f double, d decimal(20.5), b bool, at timestamp, day date, "
    "raw binary, tags string[], Odd'Name\" % string"
)
RECORD = {
    "id": 1, "s": "a'b", "i": 2**40, "f": "NaN", "d": 1.50001, "b": True, "raw": "AP8=",
    "at": "2026-01-01T01:00:00+01:00", "day": "2026-02-03", "tags": ["x"], "Odd'Name\" %": "o",
}  # fmt: skip


def test_the_view_shows_every_property_with_its_type(pg: PG, new_loads: NewLoads):
    asked = as_document(request(f"{OWN}, _sdc_sequence long", "id", "upsert"), view=True)
    loads = new_loads(pg)
    assert asked.struct.names == ["id", "data", "_sdc_sequence"]
    loads.load(asked, [(1, json.dumps(RECORD), 7), (2, json.dumps({"id": 2, "i": "no"}), 8)])
    loads.load(asked, [(3, None, 9)])
    actual = pg.table("select id, _sdc_sequence, s, i, f, d, b, at, day, raw, tags from t_view")
    assert actual[0] == (
        "1", "7", "a'b", "1099511627776", "NaN", "1.50001", "t", "2026-01-01 00:00:00+00",
        "2026-02-03", "\\x00ff", '["x"]',
    )  # fmt: skip
    assert set(actual[1][2:]) == set(actual[2][2:]) == {""}
    assert pg.table('select "Odd\'Name"" %" from t_view where id = 1') == [("o",)]


def test_the_view_follows_the_columns(pg: PG, new_loads: NewLoads):
    first = as_document(request("id int!, a string, z int", "id", "upsert"), view=True)
    loads = new_loads(pg)
    loads.load(first, [(1, '{"a":"5"}')])
    loads.load(replace(first, view=struct_of("id int!, a long, b int")), [(2, '{"a":6,"b":7}')])
    assert pg.table("select id, a, b from t_view order by id") == [("1", "", ""), ("2", "6", "7")]


def test_a_later_run_keeps_the_view_and_what_depends_on_it(pg: PG, new_loads: NewLoads):
    asked = as_document(request("id int!, a string", "id", "upsert"), view=True)
    new_loads(pg).load(asked, [(1, '{"a":"5"}')])
    pg.run("grant select on t_view to public; create view above as select a from t_view")
    more = replace(asked, view=struct_of("id int!, a string, b int"))
    for later in (asked, more, replace(more, method="overwrite")):
        loads = new_loads(pg)
        loads.load(later, [(2, '{"a":"6","b":7}')])
        loads.destination.finish(later)
    assert pg.table("select count(*) from above") == [("1",)]
    assert pg.table("select b from t_view") == [("7",)]
    assert pg.table("select has_table_privilege('public', 't_view', 'select')") == [("t",)]


def test_a_view_of_others_stays(pg: PG, new_loads: NewLoads):
    pg.run("create view t_view as select 1 as mine")
    asked = as_document(request("id int!, a string", "id", "upsert"), view=True)
    with pytest.raises(DestinationError, match=r"t_view.* was not created by target-spark; rename"):
        new_loads(pg).load(asked, [(1, '{"a":"5"}')])
    assert pg.table("select mine from t_view") == [("1",)]


def test_the_view_is_made_again_if_its_commit_failed(
    pg: PG, new_loads: NewLoads, monkeypatch: pytest.MonkeyPatch
):
    asked = as_document(request("id int!, a string", "id", "upsert"), view=True)
    loads = new_loads(pg)
    view = TableWork.view

    def failing(work: TableWork, *arguments: Any) -> None:
        view(work, *arguments)
        monkeypatch.undo()
        work.cursor.execute("SELECT pg_backend_pid()")
        pg.table(f"select pg_terminate_backend({work.cursor.fetchone()[0]})")

    monkeypatch.setattr(TableWork, "view", failing)
    loads.load(asked, [(1, '{"a":"5"}')])
    assert pg.table("select a from t_view") == [("5",)]


def test_mariadb_keeps_documents_without_a_view(maria: MariaDb, new_loads: NewLoads):
    asked = as_document(request("id int!, a string", "id", "upsert"), view=False)
    loads = new_loads(maria)
    loads.load(asked, [(1, '{"a":"5"}')])
    assert maria.table("select json_value(data, '$.a') from t") == [("5",)]
    with pytest.raises(SettingsError, match="generate_view"):
        loads.load(replace(asked, view=asked.struct), [(1, '{"a":"6"}')])
