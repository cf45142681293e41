"""Records without a value for a key property, through the whole target: mapped and as they come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from case_matrix import matrix
from mapped_bench import Bench, record, schema, state
from mapped_bench import plain as bare

from shared.errors import RecordError

pytestmark = pytest.mark.spark

NULLABLE = {
    "id": {"type": ["integer", "null"]},
    "n": {"type": ["integer", "null"]},
    "text": {"type": ["string", "null"]},
}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "n": 5, "text": "a"}, {"n": 6, "text": "b"}, {"id": 3, "text": "c"},
    {"id": None, "n": 8, "text": "d"}, {"id": 5, "n": 9},
]  # fmt: skip
LENIENT = {"policy": "LogAndContinue"}


def messages(keys: tuple[str, ...], *files: tuple[str, Path]) -> list[dict[str, Any]]:
    batches = [
        {"type": "BATCH", "stream": "s", "encoding": {"format": form}, "manifest": [str(path)]}
        for form, path in files
    ]
    records = [] if files else [record("s", row) for row in ROWS]
    return [schema("s", NULLABLE, *keys), *records, *batches, state({"n": 1})]


NAMES = ("maps", "keys", "lines", "kept")
CASES: list[tuple[Any, ...]] = [
    (None, ("id",), [3, 5], [1, 3, 5]),
    ({"*": {"__else__": None, "id": "id"}}, ("id",), [3, 5], [1, 3, 5]),
    ({"*": {"id": "id", "twice": "n * 2 if n else 0"}}, ("id",), [3, 5], [1, 3, 5]),
    ({"*": {"id": "id", "__filter__": "text != 'd'"}}, ("id",), [3], [1, 3, 5]),
    ({"*": {"k": "n", "__key_properties__": ["k"]}}, ("id",), [4], [1, 5, None, None]),
    ({"*": {"k": "n", "__key_properties__": ["k", "id"]}}, (), [3, 4, 5], [1, 5]),
    ({"*": {"__key_properties__": None}}, ("id",), [], [1, 3, 5, None, None]),
    ({"*": {"k": "text if n else None", "__key_properties__": ["k"]}}, (), [4, 6], None),
]


def every_second(first: int, *more: Any) -> list[Any]:
    """Return the cases, of which `.ci/run` has each second one: others run with other formats."""
    return [
        pytest.param(*more, *case, marks=pytest.mark.slow if number % 2 != first else ())
        for number, case in enumerate(CASES)
    ]


@pytest.mark.parametrize(
    ("either_bench", *NAMES),
    [*every_second(0, "spark"), *(("python", *case) for case in CASES)],
    indirect=["either_bench"],
)
def test_keys_count_as_they_leave_the_map(
    either_bench: Bench, caplog: Any, maps: Any, keys: tuple[str, ...], lines: list[int], kept: Any
) -> None:
    check_keys(either_bench, caplog, "parquet", (maps, keys, lines, kept))


@pytest.mark.parametrize(NAMES, every_second(1))
def test_keys_of_lines_count_alike(
    bench: Bench, caplog: Any, maps: Any, keys: tuple[str, ...], lines: list[int], kept: Any
) -> None:
    check_keys(bench, caplog, "json", (maps, keys, lines, kept))


def check_keys(bench: Bench, caplog: Any, form: str, case: tuple[Any, ...]) -> None:
    maps, keys, lines, kept = case
    settings: dict[str, Any] = {"format": form, "failure": LENIENT}
    settings |= {"stream_maps": maps} if maps else {}
    loaded = bench.target(messages(keys), settings)
    assert loaded.states == [{"n": 1}]
    reported = [
        line for line in range(1, 9) if f"line {line}: rejected: key property" in caplog.text
    ]
    assert reported == lines
    if kept is not None:
        assert sorted(ids_of(loaded.path / "s"), key=str) == kept


def ids_of(folder: Path) -> list[Any]:
    files = list(folder.glob("part-*.json"))
    if files:
        return [json.loads(x).get("id") for f in files for x in f.read_text().splitlines()]
    return list(pq.read_table(folder).column("id").to_pylist())


@pytest.mark.parametrize(
    ("mapped", "more"), matrix([False, True], [{}, {"validate_records": False}])
)
def test_one_record_without_a_key_ends_the_run(
    bench: Bench, mapped: bool, more: Mapping[str, Any]
) -> None:
    ends(bench, mapped, more)


@pytest.mark.server
@pytest.mark.usefixtures("lake_spark")
@pytest.mark.parametrize("mapped", [False, True])
def test_one_whole_record_without_a_key_ends_the_run(bench: Bench, mapped: bool) -> None:
    ends(bench, mapped, {"denormalized": False, "format": "delta"})


def ends(bench: Bench, mapped: bool, more: Mapping[str, Any]) -> None:
    settings = {**more, **({"stream_maps": {"*": {"id": "id"}}} if mapped else {})}
    with pytest.raises(RecordError, match="line 3: key property 'id' is null or missing") as actual:
        bench.target(messages(("id",)), settings)
    assert actual.value.exit_code == 5
    assert bench.messages() == []


@pytest.mark.parametrize("mapped", [False, True])
def test_rows_of_files_and_dead_letters_that_load_again(bench: Bench, mapped: bool) -> None:
    form = {name: (name, bench.folder / f"rows.{name}") for name in ("parquet", "jsonl", "csv")}
    table = pa.Table.from_pylist(ROWS, pa.schema({"id": pa.int64(), "n": pa.int64(),
                                                  "text": pa.string()}))  # fmt: skip
    pq.write_table(table, form["parquet"][1])
    form["jsonl"][1].write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    form["csv"][1].write_text("id,n,text\n1,5,a\n,6,b\n3,,c\n,8,d\n5,9,\n")
    letters = bench.folder / "letters"
    failure = {"policy": "SendToDLQ", "dead_letter_path": str(letters)}
    maps = {"stream_maps": {"*": {"id": "id", "twice": "n * 2 if n else 0"}}} if mapped else {}
    settings = {"failure": failure, "add_record_metadata": False, **maps}
    loaded = bench.target(messages(("id",), *form.values()), settings)
    assert sorted(loaded.table("s").column("id").to_pylist()) == sorted([1, 3, 5] * 3)
    actual = [json.loads(x) for p in letters.iterdir() for x in p.read_bytes().splitlines()]
    reported = sorted((m["_sdc_error"]["file"], m["_sdc_error"]["line"])
                  for m in actual if m["type"] == "RECORD")  # fmt: skip
    assert reported == sorted((str(path), line) for _, path in form.values() for line in (2, 4))
    mended = [m for m in actual if m["type"] == "SCHEMA" or ".csv" not in m["_sdc_error"]["file"]]
    for message in mended:
        message.get("record", {})["id"] = 9
    again = bench.target(mended, maps)
    assert [row["id"] for row in again.rows("s")] == [9] * 4, "rows of CSV are kept as texts"
    assert sorted({row["text"] for row in bare(again.rows("s"))}) == ["b", "d"]


def test_each_output_has_keys_of_its_own(bench: Bench, caplog: Any) -> None:
    maps = {
        "s": {"id": "id"},
        "copy": {"__source__": "s", "n": "n", "__key_properties__": ["n"]},
    }
    loaded = bench.target(messages(("id",)), {"stream_maps": maps, "failure": LENIENT})
    assert sorted(loaded.table("s").column("id").to_pylist()) == [1, 3, 5]
    assert sorted(loaded.table("copy").column("n").to_pylist()) == [5, 6, 8, 9]
    assert "records rejected: 3" in caplog.text


def test_keys_of_the_settings_count_like_those_of_the_schema(bench: Bench) -> None:
    settings = {"streams": {"s": {"key_properties": ["n"]}}}
    with pytest.raises(RecordError, match="line 4: key property 'n' is null or missing"):
        bench.target(messages(("id",)), settings)
