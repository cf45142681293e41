"""Numbers that other targets have rounded: exact in the table, or refused with their line."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sdk_places import Place
from sdk_programs import Output

from shared.engine.engine import Engine
from target_spark.config import target_config
from target_spark.load.loader import Loader
from target_spark.receive.run import run_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]

WIDE = {"minimum": 1 - 10**38, "maximum": 10**38 - 1}
PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "number": {"type": "number"},
    "exact": {"type": "number", "x-sql-datatype": "decimal(38,16)"},
    "text": {"type": "string", "format": "singer.decimal", "precision": 38, "scale": 16},
    "whole": {"type": "integer"},
    "wide": {"type": "integer", **WIDE},
    "any": {"type": ["number", "string", "null"]},
}
DIGITS = "12345678901234567890123456789012"
FRACTION = "50000.0000000000000001"
TAKEN = [
    ("number", "1e39", 1e39),
    ("number", FRACTION, 50000.0),  # a 64-bit float, as nothing makes the column a decimal
    ("exact", FRACTION, Decimal(FRACTION)),
    ("exact", "-" + "9" * 22 + ".9999999999999999", Decimal("-" + "9" * 22 + ".9999999999999999")),
    ("text", f'"{FRACTION}"', Decimal(FRACTION)),
    ("wide", DIGITS, int(DIGITS)),
    ("wide", f"-{DIGITS}", -int(DIGITS)),
    ("whole", str(2**63 - 1), 2**63 - 1),
    ("any", FRACTION, FRACTION),
    ("any", DIGITS, DIGITS),
]
REFUSED = [
    ("exact", "1e39", "has too many digits for decimal(38,16)"),
    ("exact", "0.00000000000000001", "has more than 16 decimal places"),
    ("wide", "1e39", "has too many digits for decimal(38,0)"),
    ("whole", "1e39", "is not between"),
    ("whole", DIGITS, "is not between"),
    ("whole", FRACTION, "is not of type integer"),
]
"""Property, value as JSON, and what is stored or why it is refused."""


def lines(folder: Path, variant: str) -> list[str]:
    """Messages, or messages that name a file, whose records have their number in `id`."""
    values = [(name, text) for name, text, _ in [*TAKEN, *REFUSED]]
    records = [f'{{"id":{at},"{name}":{text}}}' for at, (name, text) in enumerate(values)]
    head = {"type": "SCHEMA", "stream": "s", "key_properties": ["id"]}
    schema = json.dumps({**head, "schema": {"properties": PROPERTIES}})
    if variant == "RECORD":
        return [schema, *(f'{{"type":"RECORD","stream":"s","record":{one}}}' for one in records)]
    file = folder / "batch.jsonl"
    file.write_text("\n".join(records))
    encoding = {"format": "jsonl", "compression": "none"}
    batch = {"type": "BATCH", "stream": "s", "encoding": encoding, "manifest": [str(file)]}
    return [schema, json.dumps(batch)]


@pytest.mark.parametrize("place", ["parquet", "delta", "postgresql"], indirect=True)
@pytest.mark.parametrize("variant", ["RECORD", "BATCH"])
def test_numbers_are_exact_or_refused(
    variant: str,
    place: Place,
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {**place.settings, "failure": {"policy": "LogAndContinue"}}
    settings["streams"] = {"s": {"table": f"numbers_{variant}"}}
    config = target_config(settings)
    path = tmp_path / ".input"
    path.write_text("\n".join(lines(tmp_path, variant)) + "\n")
    fd = os.open(path, os.O_RDONLY)
    engine = Engine.of(lambda: spark)
    run_with(config, fd, Output(), Loader(config, engine), engine)  # type: ignore[arg-type]
    os.close(fd)
    rows = {row["id"]: row for row in place.rows(f"numbers_{variant}") or []}
    assert sorted(rows) == list(range(len(TAKEN)))
    for at, (name, _, wanted) in enumerate(TAKEN):
        actual = rows[at][name]
        assert isinstance(actual, float) == isinstance(wanted, float)
        assert actual == wanted
    first = len(TAKEN) + (2 if variant == "RECORD" else 1)
    for line, (name, _, reason) in enumerate(REFUSED, first):
        (reported,) = [text for text in caplog.messages if f"line {line}:" in text]
        assert f"property '{name}'" in reported
        assert reason in reported
