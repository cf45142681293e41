"""The cost of validation while reading records: 100,000 rows of 30 columns, per schema variant.

No Spark: each variant reads one staged file as an executor's task does, in one process.
Usage: python benchmarks/validation_path.py [ROWS] [ROUNDS]
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from shared.formats.arrow_types import struct_to_arrow  # noqa: E402
from shared.formats.file_formats import Encoding  # noqa: E402
from shared.formats.schema_nodes import json_schema_to_spark  # noqa: E402
from target_spark.convert.read_plan import Piece, ReadPlan  # noqa: E402
from target_spark.convert.read_rows import read_task  # noqa: E402
from target_spark.core.load_plans import InputFile  # noqa: E402

COLUMNS = 30
KINDS: tuple[dict[str, Any], ...] = (
    {"type": ["integer", "null"]},
    {"type": ["number", "null"]},
    {"type": ["string", "null"]},
    {"type": ["boolean", "null"]},
    {"type": ["string", "null"], "format": "date-time"},
    {"type": ["string", "null"]},
)
SCREENED: tuple[dict[str, Any], ...] = (
    {"minimum": 0, "maximum": 10**9},
    {"minimum": 0, "exclusiveMaximum": 1000},
    {"maxLength": 40, "pattern": r"^[\w -]+$"},
    {},
    {},
    {"enum": ["new", "open", "done", None]},
)


def record(row: int) -> dict[str, Any]:
    """Return one row."""
    values = (
        row, row % 997 + 0.25, f"customer {row}", row % 2 == 0,
        f"2026-01-{row % 28 + 1:02d}T12:00:00Z", ("new", "open", "done")[row % 3],
    )  # fmt: skip
    return {f"c{place}": values[place % len(values)] for place in range(COLUMNS)}


def schema(*more: dict[str, Any], **root: Any) -> dict[str, Any]:
    """Return a schema with the kinds of columns, each with its own keywords."""
    nodes = [
        {**KINDS[place % len(KINDS)], **(more[place % len(more)] if more else {})}
        for place in range(COLUMNS)
    ]
    return {"type": "object", "properties": {f"c{i}": n for i, n in enumerate(nodes)}, **root}


def rules(**asked: Any) -> dict[str, Any]:
    """Return keywords for the first column alone."""
    screened = schema(*SCREENED)
    screened["properties"]["c0"] |= asked
    return screened


VARIANTS: dict[str, tuple[bool, dict[str, Any]]] = {
    "validate_records: false": (False, schema()),
    "types only": (True, schema()),
    "required, null not allowed": (True, schema({"type": "integer"}, *[{}] * 5, required=["c0"])),
    "screened keywords": (True, schema(*SCREENED)),
    "additionalProperties: false": (True, schema(*SCREENED, additionalProperties=False)),
    "the library for one property": (True, rules(**{"not": {"const": -1}})),
    "minProperties": (True, schema(*SCREENED, minProperties=1)),
    "the library for every record": (True, schema(*SCREENED, allOf=[{"minProperties": 1}])),
}


def seconds(path: Path, strict: bool, node: dict[str, Any]) -> float:
    """Return the CPU seconds of one task."""
    columns = struct_to_arrow(json_schema_to_spark(node))
    plan = ReadPlan((), node, columns, strict=strict)
    began = time.process_time()
    piece = Piece(InputFile(str(path), Encoding("singer")))
    rows = sum(table.num_rows for table in read_task(plan, [piece], _NoRejects()))  # type: ignore[arg-type]
    used = time.process_time() - began
    assert rows, "nothing was read"
    return used


class _NoRejects:
    """Discards rejects instead of writing them."""

    def add(self, reject: object, text: bytes) -> None:
        raise AssertionError(reject, text)


def main(rows: int, rounds: int) -> None:
    """Print one line per variant: the median, and its ratio to the first variant."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines"
        with path.open("w") as lines:
            for row in range(rows):
                message = {"type": "RECORD", "stream": "s", "record": record(row)}
                lines.write(json.dumps(message) + "\n")
        size = os.path.getsize(path) / 1e6  # noqa: PTH202
        print(f"{rows} rows, {COLUMNS} columns, {size:.0f} MB; CPU seconds, median of {rounds}")
        seconds(path, *VARIANTS["minProperties"])  # imports
        timed: dict[str, list[float]] = {name: [] for name in VARIANTS}
        for _ in range(rounds):
            for name, (strict, node) in VARIANTS.items():
                timed[name].append(seconds(path, strict, node))
        base = statistics.median(next(iter(timed.values())))
        for name, times in timed.items():
            median = statistics.median(times)
            print(f"{name:32}{median:8.2f} s {median / base:8.2f} x")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:3]]
    main(*numbers, *(100_000, 3)[len(numbers) :])
