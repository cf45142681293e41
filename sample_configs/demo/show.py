"""Show what the target loaded, without Spark, and compare it with what was generated.

Usage: show.py FOLDER ROWS
       show.py --large FOLDER ROWS SUMMARY...; also what the summaries of the programs say.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from make_data import COLUMNS, PERIOD, order

SHOWN = 8


def loaded(folder: Path) -> ds.Dataset:
    """Return the table in a folder."""
    files = sorted(
        str(path)
        for path in folder.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
    )
    return ds.dataset(files, format="parquet")


def loaded_rows(folder: Path) -> list[dict[str, Any]]:
    """Return each row of the table, by id, without the columns that the target added."""
    table = loaded(folder).to_table()
    rows: list[dict[str, Any]] = table.select(list(COLUMNS)).sort_by("id").to_pylist()
    return rows


def generated_row(number: int) -> dict[str, Any]:
    """Return the row that `make_data.py` wrote, with the types of `tap.json`."""
    number, customer, amount, ordered_at = order(number)
    moment = datetime.fromisoformat(ordered_at.replace("Z", "+00:00"))
    return dict(zip(COLUMNS, (number, customer, Decimal(amount), moment), strict=True))


def main(folder: Path, expected: int) -> int:
    """Print the newest rows; return 1 if a row or value is not the expected one."""
    rows = loaded_rows(folder)
    print(f"{len(rows)} rows in {folder}; the last {SHOWN}:")
    for row in rows[-SHOWN:]:
        print("  " + ", ".join(f"{name}={value}" for name, value in row.items()))
    wanted = [generated_row(number) for number in range(1, expected + 1)]
    if rows != wanted:
        wrong = next((pair for pair in zip(rows, wanted, strict=False) if pair[0] != pair[1]), None)
        print(f"expected {expected} rows as generated, found {len(rows)}", file=sys.stderr)
        if wrong:
            print(f"first difference: {wrong[0]} where {wrong[1]} was expected", file=sys.stderr)
        return 1
    print("every value is as it was generated")
    return 0


def large(folder: Path, expected: int, summaries: list[Path]) -> int:
    """Print what both programs say of a large run; return 1 if rows are missing or differ."""
    for path in summaries:
        facts = json.loads(path.read_text())
        (stream,) = facts["streams"].values()
        rows = sum(facts["timeline"]["rows"])
        print(
            f"{facts['program']}: {rows:,} rows in {facts['seconds']:.1f} s, by {stream['engine']} "
            f"({stream['engine_reason']})"
        )
    table = loaded(folder).to_table(columns=["id", "amount"])
    amounts = [Decimal(order(number)[2]) for number in range(PERIOD)]
    whole, rest = divmod(expected, PERIOD)
    total = whole * sum(amounts) + sum(amounts[1 : rest + 1])
    is_right = (
        table.num_rows == pc.count_distinct(table["id"]).as_py() == expected
        and pc.max(table["id"]).as_py() == expected
        and pc.sum(table["amount"].cast(pa.decimal128(38, 2))).as_py() == total
    )
    print(f"{table.num_rows:,} rows in {folder}: {'as' if is_right else 'NOT as'} generated")
    return 0 if is_right else 1


if __name__ == "__main__":
    if sys.argv[1] == "--large":
        sys.exit(large(Path(sys.argv[2]), int(sys.argv[3]), [*map(Path, sys.argv[4:])]))
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
