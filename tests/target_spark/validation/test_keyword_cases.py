"""Every keyword against every value: the target's readers and the library agree."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from validation_cases import CASES, COMMON, DEFINITIONS, RECORDS, ROOTS

from shared.formats.arrow_types import struct_to_arrow
from shared.formats.file_formats import Encoding
from shared.formats.schema_nodes import json_schema_to_spark
from target_spark.convert.read_plan import Piece, ReadPlan
from target_spark.convert.read_rows import read_task
from target_spark.core.load_plans import InputFile, Reject

pytestmark = pytest.mark.once

WORDS = ('"NaN"', '"-Infinity"')
NOT_STORED = re.compile(
    r"is not of type (date|date-time|time|binary in base64|duration)\b|is out of range"
    r"|is not between|has too many digits|decimal places, for|not Unicode"
)
"""Reasons of the readers that are about columns, not about the schema."""


class Collected(list[Reject]):
    """Stands in for the writer of rejects."""

    read = 0
    cut: frozenset[str] = frozenset()

    def add(self, reject: Reject, text: bytes) -> None:
        assert "\n" not in reject.reason
        self.append(reject)

    def add_undeclared(self, name: str, count: int) -> None:
        """Ignore properties that the schema lacks."""


def refused(folder: Path, schema: dict[str, Any], records: list[str], form: str) -> dict[int, str]:
    """Return the records, from 0, that the real reading code rejects, with reasons."""
    path = folder / "lines"
    lines = records
    if form == "singer":
        lines = [f'{{"type":"RECORD","stream":"s","record":{record}}}' for record in records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    columns = struct_to_arrow(json_schema_to_spark(schema))
    rejects = Collected()
    plan = ReadPlan(tasks=(), schema=schema, columns=columns, strict=True)
    piece = Piece(InputFile(str(path), Encoding(form)))
    kept = sum(table.num_rows for table in read_task(plan, [piece], rejects))  # type: ignore[arg-type]
    assert kept + len(rejects) == len(records)
    return {reject.line - 1: reject.reason for reject in rejects}


def verdicts(
    folder: Path, schema: dict[str, Any], records: list[str], *, alone: bool
) -> dict[int, str]:
    """Return the verdicts on records, one block for each, or all in one block."""
    if not alone:
        return refused(folder, schema, records, "singer")
    actual = {}
    for place, record in enumerate(records):
        for reason in refused(folder, schema, [record], "jsonl").values():
            actual[place] = reason
    return actual


def unstorable(schema: dict[str, Any], reason: str) -> bool:
    """Return whether a reason is about what a typed column can hold."""
    if NOT_STORED.search(reason):
        return True
    # Types that follow from other keywords than `type` are types of columns.
    node = schema.get("properties", {}).get("v", {})
    if isinstance(node, dict) and node.get("format") == "singer.decimal":
        return "is not of type number" in reason
    is_untyped = (
        isinstance(node, dict) and "type" not in node and {"items", "properties"} & set(node)
    )
    return bool(is_untyped and "is not of type" in reason)


def compare(schema: dict[str, Any], records: list[str], actual: dict[int, str]) -> None:
    library = Draft202012Validator(schema)
    for place, record in enumerate(records):
        valid = library.is_valid(json.loads(record))
        reported = f"{json.dumps(schema)} {record}: {actual.get(place)}"
        if valid and place in actual:
            assert unstorable(schema, actual[place]), reported
        if not valid and place not in actual:
            assert any(word in record for word in WORDS), reported


ONE = [(name, place) for name, cases in CASES.items() for place in range(len(cases))]


@pytest.mark.parametrize(("name", "place"), ONE)
def test_one_property(tmp_path: Path, name: str, place: int) -> None:
    node, own = CASES[name][place]
    records = ["{}", *(f'{{"v":{value}}}' for value in (*COMMON, *own))]
    for required in ([], ["v"]):
        schema = {"type": "object", "properties": {"v": node}, "$defs": DEFINITIONS}
        if required:
            schema["required"] = required
        Draft202012Validator.check_schema(schema)
        for alone in (False,) if required else (False, True):
            compare(schema, records, verdicts(tmp_path, schema, records, alone=alone))


@pytest.mark.parametrize("place", range(len(ROOTS)))
def test_whole_records(tmp_path: Path, place: int) -> None:
    schema, records = ROOTS[place], list(RECORDS)
    Draft202012Validator.check_schema(schema)
    for alone in (False, True):
        compare(schema, records, verdicts(tmp_path, schema, records, alone=alone))
