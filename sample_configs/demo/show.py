"""Show what the target loaded, without Spark. Usage: show.py FOLDER [EXPECTED_ROWS]."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.dataset as ds

SHOWN = 5


def main(folder: str, expected: int | None) -> int:
    """Print the newest rows; fail where the number of rows or ids is not the expected one."""
    files = sorted(
        str(path)
        for path in Path(folder).rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
    )
    table = ds.dataset(files, format="parquet").to_table().sort_by("id")
    columns = [name for name in table.column_names if not name.startswith("_sdc_")]
    print(f"{table.num_rows} rows in {folder}; the last {SHOWN}:")
    for row in table.select(columns).slice(max(0, table.num_rows - SHOWN)).to_pylist():
        print("  " + ", ".join(f"{name}={value}" for name, value in row.items()))
    ids = len(set(table.column("id").to_pylist()))
    if expected is not None and (table.num_rows, ids) != (expected, expected):
        print(f"expected {expected} rows, found {table.num_rows} with {ids} ids", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None))  # noqa: PLR2004
