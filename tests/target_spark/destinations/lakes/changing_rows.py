"""Random rows for tables whose rows are changed with and without Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

Rows = list[dict[str, Any]]
DELETED = "_sdc_deleted_at"
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=ZoneInfo("UTC"))
VALUES: dict[str, list[Any]] = {
    "long": [None, 0, -1, 2**62],
    "decimal(38,2)": [None, Decimal("123456789012345678901234567890123456.78"), Decimal("0.00")],
    "decimal(9,2)": [None, Decimal("1.25"), Decimal("0.00")],
    "string": [None, "", "a", "ü" * 40, "x" * 80],
    "date": [None, dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "timestamp": [None, NOON, NOON + dt.timedelta(microseconds=1)],
    "timestamp_ntz": [None, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)],
    "boolean": [None, True, False],
}
"""Values of each type that keys and orders may have."""


def chosen(chance: Random, kinds: dict[str, str]) -> dict[str, Any]:
    """Return a row with columns of these types."""
    return {name: chance.choice(VALUES[kind]) for name, kind in kinds.items()}
