"""The same maps have the same rows in the tap and in the target, as RECORD and as BATCH."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Any

import pytest
from mapped_bench import Bench, Loaded, of_type

pytestmark = pytest.mark.spark

DDL = (
    "id long, name string, price double, exact decimal(20,4), day date, at timestamp, "
    "flag boolean, deep struct<a:long,b:struct<c:string>>, tags array<string>, "
    "lines array<struct<no:long,at:timestamp,x:struct<y:string>>>"
)
LINES = [
    {
        "id": n,
        "name": [None, "Ann", 'ünï "x"\n', ""][n % 4],
        "price": [0.1, -2.5e-7, 1e20, None][n % 4],
        "exact": f"{n}.1250",
        "day": f"2026-01-{n % 28 + 1:02}",
        "at": f"2026-01-01T00:00:{n % 60:02}.000{n % 10}00Z",
        "flag": n % 2 == 0 if n % 5 else None,
        "deep": {"a": n, "b": {"c": f"c{n}"}} if n % 3 else None,
        "tags": [str(n), None] if n % 4 else [],
        "lines": [{"no": n, "at": "2026-01-01T00:00:00Z", "x": {"y": "z"}}, None]
        if n % 3
        else None,
    }
    for n in range(40)
]
MAPS: dict[str, Any] = {
    "rows": {
        "__filter__": "id % 7 != 3",
        "__alias__": "'made_' + __stream_name__",
        "name": "name.strip().upper() if name else None",
        "hashed": "md5(name) if name else 'none'",
        "total": "price * 2 if price is not None else 0.0",
        "label": "f'{id}-{name}'",
        "exact": "exact",
        "flag": None,
        "deep": "deep",
        "first": "tags[0] if tags else None",
    },
    "copy": {"__source__": "rows", "__else__": None, "id": "id", "when": "at", "d": "deep"},
    "parts": {
        "__source__": "rows",
        "__explode__": "lines",
        "__index__": "place",
        "__filter__": "__parent__['flag'] is not None",
        "id": "__parent__['id'] * 10 + place",
        "label": "f'{__parent__[\"name\"]}-{no}'",
        "deep": "__parent__['deep']",
        "exact": "__parent__.exact",
    },
}
FLAT = {"flattening_enabled": True, "flattening_max_depth": 3}
SENT: dict[str, Any] = {
    "RECORD": {},
    "jsonl": {"encoding": {"format": "jsonl", "compression": "gzip"}, "batch_size": 15},
    "parquet": {"encoding": {"format": "parquet", "compression": "zstd"}},
}
OUTPUTS = {"made_rows": 34, "copy": 40, "parts": 21}


def tap_settings(bench: Bench, kind: str) -> dict[str, Any]:
    path = bench.folder / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    stream = {"name": "rows", "format": "json", "path": str(path), "schema": DDL}
    settings: dict[str, Any] = {"streams": [{**stream, "key_properties": ["id"]}]}
    if SENT[kind]:
        root = f"file://{bench.folder}/files"
        settings["batch_config"] = {**SENT[kind], "storage": {"root": root}}
    return settings


def loaded(bench: Bench, kind: str, side: str, maps: dict[str, Any]) -> Loaded:
    settings = tap_settings(bench, kind)
    messages = bench.tap({**settings, **(maps if side == "tap" else {})})
    wanted = "RECORD" if kind == "RECORD" else "BATCH"
    assert of_type(messages, wanted)
    assert not of_type(messages, "BATCH" if kind == "RECORD" else "RECORD")
    # `x-spark-type` of the tap would keep types that the target alone cannot detect.
    own = {"add_record_metadata": False}
    return bench.target(messages, {**own, **(maps if side == "target" else {})})


@pytest.fixture(scope="module")
def first() -> dict[str, Any]:
    """The rows of the first way, to compare the others with."""
    return {}


IN_CI = {
    ("maps", "RECORD", "target"), ("maps", "parquet", "tap"),
    ("maps and flattening", "jsonl", "target"), ("maps and flattening", "RECORD", "tap"),
}  # fmt: skip
"""Two ways for each maps, to be compared."""
WAYS = [*itertools.product(["maps", "maps and flattening"], SENT, ["tap", "target"])]


@pytest.mark.parametrize(
    ("maps", "kind", "side"),
    [pytest.param(*one, marks=() if one in IN_CI else pytest.mark.slow) for one in WAYS],
)
def test_the_same_rows_come_out(
    bench: Bench, first: dict[str, Any], kind: str, side: str, maps: str
) -> None:
    settings = {"stream_maps": MAPS, **(FLAT if "flattening" in maps else {})}
    actual = loaded(bench, kind, side, settings)
    assert actual.tables == sorted(OUTPUTS)
    for name, count in OUTPUTS.items():
        table = actual.table(name).sort_by("id")
        rows = table.to_pylist()
        assert len(rows) == count
        existing = first.setdefault(f"{maps} {name}", (table.column_names, rows))
        assert (table.column_names, rows) == existing
    check_made_rows(actual.rows("made_rows"))


def check_made_rows(rows: list[dict[str, Any]]) -> None:
    by_id = {row["id"]: row for row in rows}
    assert by_id[1]["name"] == "ANN"
    assert by_id[1]["hashed"] == hashlib.md5(b"Ann").hexdigest()
    assert by_id[4]["hashed"] == "none"
    assert by_id[5]["label"] == "5-Ann"
    assert by_id[4]["first"] is None
    assert by_id[5]["first"] == "5"
    assert str(by_id[5]["exact"]) == "5.1250"
    assert "flag" not in by_id[5]
