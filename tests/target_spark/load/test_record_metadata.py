"""All `_sdc_*` columns mean the same for RECORD and BATCH, with and without maps.

https://sdk.meltano.com/en/latest/implementation/record_metadata.html says what they mean.
"""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from case_matrix import matrix
from mapped_bench import Bench, record, schema, state

from shared.maps.record_metadata import COLUMNS, DELETED_AT

pytestmark = pytest.mark.spark

PROPERTIES = {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}}
DELETED = {DELETED_AT: {"type": ["string", "null"], "format": "date-time"}}
GONE_AT = datetime(2026, 3, 4, 5, 6, 7, 800000, timezone.utc)
EXTRACTED_AT = datetime(2026, 2, 3, 4, 5, 6, 700000, timezone.utc)
MAPS: dict[str, Any] = {
    "without maps": {},
    "with maps": {"stream_maps": {"s": {"name": "name.upper()", "twice": "id * 2"}}},
    "dropping all others": {"stream_maps": {"s": {"id": "id", "__else__": None}}},
    "flattened": {"flattening_enabled": True, "flattening_max_depth": 1},
    "as a copy": {"stream_maps": {"other": {"__source__": "s", "name": "id"}, "s": {"x": "id"}}},
}
PAIRS = [
    *((kind, maps) for kind in ("RECORD", "parquet") for maps in MAPS),
    *((kind, maps) for kind in ("jsonl", "csv", "avro") for maps in ("without maps", "with maps")),
]
IN_CI = {
    "RECORD": ("without maps", "with maps", "as a copy"),
    "parquet": ("without maps", "dropping all others", "flattened"),
    "jsonl": ("with maps",),
    "csv": ("without maps",),
    "avro": ("with maps",),
}
"""Each kind, and each maps, at least once; the other pairs are `slow`."""
VERSION = 7


def rows() -> list[dict[str, Any]]:
    return [
        {"id": 0, "name": "a", DELETED_AT: None},
        {"id": 1, "name": "b", DELETED_AT: GONE_AT.isoformat()},
    ]


def messages(kind: str, folder: Path) -> list[dict[str, Any]]:
    first = schema("s", {**PROPERTIES, **DELETED}, "id")
    if kind == "RECORD":
        at = EXTRACTED_AT.isoformat()
        sent = [record("s", row, time_extracted=at, version=VERSION) for row in rows()]
        return [first, *sent, state(1)]
    path = folder / f"batch.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    elif kind == "csv":
        lines = [f"{row['id']},{row['name']},{row[DELETED_AT] or ''}" for row in rows()]
        path.write_text("\n".join([f"id,name,{DELETED_AT}", *lines]) + "\n")
    elif kind == "avro":
        fastavro = pytest.importorskip("fastavro")
        fields = [{"name": "id", "type": "long"}]
        fields += [{"name": name, "type": ["null", "string"]} for name in ("name", DELETED_AT)]
        avro = {"type": "record", "name": "r", "fields": fields}
        with path.open("wb") as file:
            fastavro.writer(file, avro, rows())
    else:
        gone = pa.array([None, GONE_AT], pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"id": [0, 1], "name": ["a", "b"], DELETED_AT: gone}), path)
    encoding = {"format": kind, "compression": "none"}
    manifest = [f"file://{path}"]
    batch = {"type": "BATCH", "stream": "s", "encoding": encoding, "manifest": manifest}
    return [first, {**batch, "version": VERSION}, state(1)]


def near(moment: datetime, first: float, last: float) -> bool:
    slack = timedelta(milliseconds=2)
    begin, end = (datetime.fromtimestamp(at, timezone.utc) for at in (first, last))
    return begin - slack <= moment <= end + slack


@pytest.mark.parametrize(
    ("kind", "maps"),
    [pytest.param(*p, marks=() if p[1] in IN_CI[p[0]] else pytest.mark.slow) for p in PAIRS],
)
def test_every_column(bench: Bench, kind: str, maps: str) -> None:
    begin = time.time()
    loaded = bench.target(messages(kind, bench.folder), MAPS[maps])
    end = time.time()
    stream = "other" if maps == "as a copy" else "s"
    table = loaded.table(stream)
    assert set(COLUMNS) <= set(table.column_names)
    assert tuple(table.column_names[-7:]) == COLUMNS
    zero, one = loaded.rows(stream)
    expected = EXTRACTED_AT if kind == "RECORD" else None
    for row in (zero, one):
        # When the tap read it; files do not contain that.
        assert row["_sdc_extracted_at"] == expected
        # When the target got the message, and when it made the batch of it.
        assert near(row["_sdc_received_at"], begin, end)
        assert near(row["_sdc_batched_at"], begin, end)
        assert row["_sdc_received_at"] <= row["_sdc_batched_at"]
        # Milliseconds since the epoch: of the receipt, and of the start of the run.
        received = row["_sdc_received_at"].timestamp()
        assert abs(row["_sdc_sequence"] - received * 1000) <= 1
        assert begin * 1000 - 2 <= row["_sdc_sync_started_at"] <= row["_sdc_sequence"] + 2
        assert row["_sdc_table_version"] == VERSION
    # As the record says.
    assert (zero[DELETED_AT], one[DELETED_AT]) == (None, GONE_AT)


@pytest.mark.parametrize(
    ("kind", "maps"), matrix(["RECORD", "parquet"], ["without maps", "with maps"])
)
def test_none_of_them_where_they_are_not_wanted(bench: Bench, kind: str, maps: str) -> None:
    settings = {**MAPS[maps], "add_record_metadata": False}
    loaded = bench.target(messages(kind, bench.folder), settings)
    assert not set(COLUMNS) & set(loaded.table("s").column_names)


@pytest.mark.parametrize("maps", ["without maps", "with maps"])
def test_records_of_other_versions_keep_theirs(bench: Bench, maps: str) -> None:
    sent = [record("s", {"id": n, "name": "x"}, version=n) for n in (1, 2)]
    sent += [record("s", {"id": 3, "name": "x"})]
    loaded = bench.target([schema("s", PROPERTIES, "id"), *sent, state(1)], MAPS[maps])
    versions = [(row["id"], row["_sdc_table_version"]) for row in loaded.rows("s")]
    assert versions == [(1, 1), (2, 2), (3, None)]


@pytest.mark.parametrize("hard", [True, False])
def test_activated_versions_reach_the_tables_of_all_outputs(bench: Bench, hard: bool) -> None:
    activate = {"type": "ACTIVATE_VERSION", "stream": "s", "version": 2}
    sent = [record("s", {"id": n, "name": "x"}, version=n) for n in (1, 2)]
    settings = {**MAPS["as a copy"], "hard_delete": hard}
    loaded = bench.target([schema("s", PROPERTIES, "id"), *sent, activate, state(1)], settings)
    for stream in ("s", "other"):
        left = [(row["id"], row[DELETED_AT] is None) for row in loaded.rows(stream)]
        assert left == ([(2, True)] if hard else [(1, False), (2, True)])
