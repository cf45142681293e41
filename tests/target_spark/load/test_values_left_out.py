"""Properties that the SCHEMA lacks are not loaded, times are cut: the run says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from case_matrix import matrix
from mapped_bench import Bench, record, schema, state
from pyarrow import parquet

SCHEMA = schema("s", {"id": {"type": "integer"}, "a": {"type": ["null", "string"]}})
SKIPPED = {"id": 1, "a": "x", "more": 1, "_sdc_batched_at": "2026-01-01T00:00:00Z"}
MORE = "stream 's': property 'more' is not loaded: the SCHEMA lacks it"


def sent(kind: str, folder: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if kind == "RECORD":
        return [record("s", row) for row in rows]
    path = folder / f"{rows[0]['id']}.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), path)
    files = {"encoding": {"format": "parquet"}, "manifest": [f"file://{path}"]}
    return [{"type": "BATCH", "stream": "s", **files}]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("maps", "kind", "either_bench"),
    matrix(
        [None, {"s": {"id": "id * 2"}}, {"s": {"id": "id"}}],
        ["RECORD", "BATCH"],
        ["spark", "python"],
        rounds=2,
    ),
    indirect=["either_bench"],
)
def test_an_undeclared_property_is_said_once(
    kind: str, maps: Any, either_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [SKIPPED, {**SKIPPED, "id": 2}]
    messages = [SCHEMA, *sent(kind, either_bench.folder, rows[:1]), state(1)]
    messages += [*sent(kind, either_bench.folder, rows[1:]), state(2)]
    either_bench.target(messages, {"stream_maps": maps} if maps else {})
    said = [text for text in caplog.messages if "SCHEMA" in text]
    assert said == [MORE]


def test_what_is_rejected_is_not_said(dry_bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    closed = {**SCHEMA, "schema": {**SCHEMA["schema"], "additionalProperties": False}}
    dry_bench.target([closed, record("s", SKIPPED)], {"failure": {"policy": "LogAndContinue"}})
    assert not [text for text in caplog.messages if "SCHEMA" in text]


def test_only_the_first_properties_are_named(
    dry_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    dry_bench.target([SCHEMA, record("s", {"id": 1, **{f"p{n}": n for n in range(30)}})])
    said = [text for text in caplog.messages if "SCHEMA" in text]
    assert len(said) == 20
    assert said[-1].endswith("; further ones are not named")


TIMES = schema("s", {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}})


@pytest.mark.parametrize(
    ("digits", "said"),
    [("123456000", []), ("1234567", ["stream 's': times of 'at' are cut to microseconds"])],
)
@pytest.mark.parametrize("kind", ["RECORD", "csv", "parquet"])
def test_times_that_are_cut_are_said_once(
    kind: str, digits: str, said: list[str], dry_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    text = f"2026-01-02T03:04:05.{digits}Z"
    rows = [{"id": 1, "at": text}, {"id": 2, "at": text}]
    messages = [record("s", row) for row in rows]
    if kind != "RECORD":
        path = dry_bench.folder / f"rows.{kind}"
        if kind == "csv":
            path.write_text(f"id,at\n1,{text}\n2,{text}\n")
        else:
            at = pa.array([text, text]).cast(pa.timestamp("ns", "UTC"))
            parquet.write_table(pa.table({"id": [1, 2], "at": at}), path)
        files = {"encoding": {"format": kind}, "manifest": [f"file://{path}"]}
        messages = [{"type": "BATCH", "stream": "s", **files}]
    loaded = dry_bench.target([TIMES, *messages, state(1), record("s", rows[0])])
    assert [line for line in caplog.messages if "are cut to" in line] == said
    assert {row["at"].microsecond for row in loaded.rows("s")} == {123456}
