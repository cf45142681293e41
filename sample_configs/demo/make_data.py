"""Write sample orders for the demo into CSV files, the same on every machine.

Usage: make_data.py FOLDER ROWS [FIRST_ID]; appends to existing files.
"""

from __future__ import annotations

import csv
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

FILES = 3
CUSTOMERS = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Zoë, Ltd.", 'The "Quoted" Co.')
START = datetime(2024, 1, 1, tzinfo=timezone.utc)
COLUMNS = ("id", "customer", "amount", "ordered_at")


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


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1)  # noqa: PLR2004
