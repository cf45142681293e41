"""Messages byte for byte: the golden file, names that need escapes, values JSON finds hard."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.singer import messages

GOLDEN = Path(__file__).parent / "golden" / "run.jsonl"
MOMENT = datetime(2026, 11, 21, 6, 20, 21, 224137, tzinfo=timezone.utc)
VERSION = 1795242021224


def record(stream: str, text: str, moment: datetime = MOMENT, version: int | None = None) -> bytes:
    return (messages.record_head(stream) + text + messages.record_tail(moment, version)).encode()


def golden_lines() -> list[bytes]:
    properties = {"id": {"type": ["integer", "null"]}}
    schema = {"type": "object", "properties": properties}
    bookmarks = {"orders": {"replication_key": "id", "replication_key_value": 3}}
    return [
        messages.schema_line("orders", schema, ["id"], ["id"]),
        messages.schema_line("no keys", {"type": "object", "properties": {}}, ()),
        messages.activate_version_line("orders", VERSION),
        record("orders", '{"id":1}'),
        record("orders", '{"id":2}', MOMENT.replace(microsecond=0), VERSION),
        record('say "hi" \\ ünï\n☃', '{"id":3}'),
        messages.batch_line(
            "orders", {"format": "jsonl", "compression": "gzip"}, ["file:///a b.json.gz"]
        ),
        messages.batch_line("orders", {"format": "parquet"}, (), version=7),
        messages.state_line({"bookmarks": bookmarks}),
        messages.state_line({"big": 2**128, "text": "ü"}),
    ]


def test_golden_lines() -> None:
    # Integers beyond 64 bits take the other encoder, which escapes what is not ASCII.
    wanted = [
        line.replace("ü".encode(), b"\\u00fc") if b"big" in line else line
        for line in GOLDEN.read_bytes().splitlines(keepends=True)
    ]
    assert golden_lines() == wanted


@pytest.mark.parametrize("number", range(10))
def test_every_line_is_one_json_object(number: int) -> None:
    line = golden_lines()[number]
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line)["type"] in {"SCHEMA", "RECORD", "STATE", "BATCH", "ACTIVATE_VERSION"}


@given(st.text(max_size=30))
def test_any_stream_name_survives(name: str) -> None:
    line = record(name, "{}")
    assert line.startswith(b'{"type":"RECORD","stream":')
    assert line.count(b"\n") == 1
    assert json.loads(line)["stream"] == name


def test_a_lone_surrogate_is_written_as_an_escape() -> None:
    assert json.loads(messages.state_line({"name": "\ud800"}))["value"] == {"name": "\ud800"}


def test_any_mapping_is_an_object() -> None:
    value = MappingProxyType({"a": MappingProxyType({"b": (1, 2)})})
    assert messages.encode(value) == b'{"a":{"b":[1,2]}}'
    assert json.loads(messages.encode({"v": value, "n": 2**70}))["v"] == {"a": {"b": [1, 2]}}


def test_a_value_without_a_form_in_json_is_refused() -> None:
    with pytest.raises(TypeError, match="Decimal"):
        messages.encode({"value": Decimal("1.5")})


def test_time_extracted_is_in_utc_with_six_digits() -> None:
    east = timezone(timedelta(hours=2))
    assert messages.timestamp(datetime(2026, 1, 1, 1, tzinfo=east)) == (
        "2025-12-31T23:00:00.000000+00:00"
    )


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text()
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    )
)
def test_state_comes_back_as_it_went(value: object) -> None:
    line = messages.state_line(value)
    assert json.loads(line) == {"type": "STATE", "value": value}
    assert line.count(b"\n") == 1
