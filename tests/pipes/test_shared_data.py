"""Every real file through the whole pipe, compared with its source value by value."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.pipe, pytest.mark.costly]

CSV_FILES = (
    "birdstrikes",
    "jaffle_raw_customers",
    "jaffle_raw_orders",
    "jaffle_raw_payments",
    "zipcodes",
)
JSON_FILES = {"movies": None, "flights-20k": None, "earthquakes": "features"}


def streams(data: Path) -> list[dict[str, Any]]:
    csv_streams = [
        {"name": name, "format": "csv", "path": str(data / f"{name}.csv")} for name in CSV_FILES
    ]
    json_streams = [
        {"name": name, "format": "json", "path": str(data / f"{name}.json")}
        | ({"records_path": records} if records else {})
        for name, records in JSON_FILES.items()
    ]
    return csv_streams + json_streams


def loaded(output: Path, stream: str) -> list[dict[str, Any]]:
    table = pq.read_table(output / stream)
    own = [name for name in table.column_names if not name.startswith("_sdc_")]
    return table.select(own).to_pylist()


def text_as(value: str, example: pa.DataType) -> Any:
    """What a CSV cell must have become in a column of this type."""
    if value == "":
        return None
    if pa.types.is_integer(example) or pa.types.is_floating(example):
        return pa.scalar(value).cast(example).as_py()
    if pa.types.is_boolean(example):
        return value.lower() == "true"
    if pa.types.is_temporal(example):
        return pa.scalar(value).cast(example).as_py()
    assert pa.types.is_string(example) or pa.types.is_large_string(example), example
    return value


def csv_rows(path: Path, table: pa.Schema) -> Iterator[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield {name: text_as(value, table.field(name).type) for name, value in row.items()}


def rows_of(document: Any, records: str | None) -> list[dict[str, Any]]:
    return document[records] if records else document


def same(expected: Any, actual: Any) -> bool:
    """Equal, where a struct field that the source left out reads as null."""
    if isinstance(expected, dict):
        names = set(expected) | set(actual or {})
        return all(same(expected.get(name), (actual or {}).get(name)) for name in names)
    if isinstance(expected, list):
        return len(expected) == len(actual) and all(map(same, expected, actual))
    if isinstance(actual, str) and not isinstance(expected, str):
        return expected is not None and json.loads(actual) == expected
    return bool(expected == actual)


def canonical(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in rows)


def check_all(data: Path, output: Path) -> None:
    for name in CSV_FILES:
        schema = pq.read_schema(next((output / name).glob("*.parquet")))
        assert canonical(csv_rows(data / f"{name}.csv", schema)) == canonical(loaded(output, name))
    for name, records in JSON_FILES.items():
        document = json.loads((data / f"{name}.json").read_text(encoding="utf-8"))
        expected, actual = rows_of(document, records), loaded(output, name)
        assert len(expected) == len(actual)
        wrong = [pair for pair in zip(expected, actual, strict=True) if not same(*pair)]
        assert not wrong, (name, wrong[0])


def test_every_file_arrives_value_by_value(programs, data_dir, tmp_path):
    output = tmp_path / "out"
    result = programs.pipe({"streams": streams(data_dir)}, {"path": str(output)}).check()
    check_all(data_dir, output)
    zips = pq.read_table(output / "zipcodes", columns=["zip_code"])["zip_code"]
    assert "00501" in zips.to_pylist()
    assert set(result.state["bookmarks"]) == {stream["name"] for stream in streams(data_dir)}


def as_positions(stream: dict[str, Any]) -> dict[str, Any]:
    # The last line of one of the CSV files has no end.
    more = {"read_unterminated_line": True} if stream["format"] == "csv" else {}
    return {**stream, "replication_method": "INCREMENTAL", **more}


@pytest.mark.parametrize("share", [0.3, pytest.param(0.8, marks=pytest.mark.slow)])
def test_a_cut_pipe_resumes_without_loss(programs, data_dir, tmp_path, share):
    """The target gets a part of the tap's output that ends in the middle of a line."""
    output = tmp_path / "out"
    tap_config = {"streams": [as_positions(stream) for stream in streams(data_dir)]}
    whole = programs.run(programs.tap_command(tap_config))
    assert whole.returncode == 0, whole.stderr.decode()
    cut = whole.stdout[: int(len(whole.stdout) * share)].rstrip(b"\n")
    target_config = {"path": str(output), "batch_size_rows": 5000}
    first = programs.run(programs.target_command(target_config), stdin=cut)
    assert first.returncode == 4, first.stderr.decode()
    state = json.loads(first.stdout.splitlines()[-1])
    done = set(state["bookmarks"])
    counts = {name: pq.read_table(output / name).num_rows for name in done}
    programs.pipe(tap_config, target_config, state=state).check()
    assert {name: pq.read_table(output / name).num_rows for name in done} == counts
    for name in CSV_FILES:
        schema = pq.read_schema(next((output / name).glob("*.parquet")))
        missing = canonical(csv_rows(data_dir / f"{name}.csv", schema)) - canonical(
            loaded(output, name)
        )
        assert not missing
