"""Show what the target loaded, without Spark, and compare it with what was generated.

Usage: show.py FOLDER ROWS
"""

from __future__ import annotations

import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from make_data import COLUMNS, order

SHOWN = 8


def loaded_rows(folder: Path) -> list[dict[str, Any]]:
    """Return each row of the table, by id, without the columns that the target added."""
    files = sorted(
        str(path)
        for path in folder.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
    )
    table = ds.dataset(files, format="parquet").to_table()
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


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
