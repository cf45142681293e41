"""Write sample orders for the demo into CSV files, the same on every machine.

Usage: make_data.py FOLDER ROWS [FIRST_ID]; appends to existing files.
       make_data.py --large FOLDER ROWS; with notes, and values that repeat but for the id.
"""

from __future__ import annotations

import csv
import io
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

FILES = 3
CUSTOMERS = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Zoë, Ltd.", 'The "Quoted" Co.')
START = datetime(2024, 1, 1, tzinfo=timezone.utc)
COLUMNS = ("id", "customer", "amount", "ordered_at")
PERIOD = 10_000
NOTE = "leave it at the door, and ring the bell of the second floor"


def order(number: int) -> tuple[int, str, str, str]:
    """Return the row of an order."""
    cents = number * 7919 % 100_000
    moment = START + timedelta(minutes=number * 37)
    customer = CUSTOMERS[number % len(CUSTOMERS)]
    amount = f"{cents // 100}.{cents % 100:02}"
    return number, customer, amount, moment.isoformat().replace("+00:00", "Z")


def main(folder: Path, rows: int, first_id: int) -> None:
    """Append the orders to the files in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(FILES):
        path = folder / f"orders-{part + 1}.csv"
        is_new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if is_new:
                writer.writerow(COLUMNS)
            writer.writerows(
                order(number) for number in range(first_id + part, first_id + rows, FILES)
            )


def large(folder: Path, rows: int) -> None:
    """Write many orders; those of every PERIOD differ only by the id."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(
        (*order(number)[1:], NOTE) for number in range(PERIOD)
    )
    tails = lines.getvalue().splitlines(keepends=True)
    for part in range(FILES):
        with (folder / f"orders-{part + 1}.csv").open("w", encoding="utf-8") as file:
            file.write(",".join((*COLUMNS, "note")) + "\n")
            numbers = range(part + 1, rows + 1, FILES)
            file.writelines(f"{number},{tails[number % PERIOD]}" for number in numbers)


if __name__ == "__main__":
    if sys.argv[1] == "--large":
        large(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1)  # noqa: PLR2004
