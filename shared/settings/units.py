"""Durations and sizes as users write them: `500 ms`, `5 minutes`, `64 MiB`."""

from __future__ import annotations

import re
from decimal import Decimal

DURATION_UNITS: dict[str, int] = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "millisecond": 1,
    "milliseconds": 1,
    "second": 1_000,
    "seconds": 1_000,
    "minute": 60_000,
    "minutes": 60_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "day": 86_400_000,
    "days": 86_400_000,
}
"""Milliseconds in each unit of time."""

_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
SIZE_UNITS: dict[str, int] = {"B": 1, "byte": 1, "bytes": 1}
"""Bytes in each unit of size; `k` for `K` and all lower case are accepted too."""
SIZE_UNITS |= {f"{letter}B": 1000**power for letter, power in _POWERS.items()}
SIZE_UNITS |= {f"{letter}iB": 1024**power for letter, power in _POWERS.items()}
_SIZE_SPELLINGS = SIZE_UNITS | {unit.lower(): count for unit, count in SIZE_UNITS.items()}
_SIZE_SPELLINGS |= {"kB": 1000, "kiB": 1024}


def _pattern(units: dict[str, int]) -> str:
    words = "|".join(sorted(units, key=len, reverse=True))
    return rf"^ *([0-9]+(?:\.[0-9]+)?) *({words})? *$"


DURATION_PATTERN = _pattern(DURATION_UNITS)
SIZE_PATTERN = _pattern(_SIZE_SPELLINGS)


def milliseconds(value: int | float | str) -> Decimal:
    """Read a duration: a number of milliseconds, or text with a unit.

    Raises:
        ValueError: The text is not a number with a unit of `DURATION_UNITS`.
    """
    return _amount(value, DURATION_PATTERN, DURATION_UNITS)


def byte_count(value: int | float | str) -> int:
    """Read a size: a number of bytes, or text with a unit; fractions of a byte are truncated.

    `KB`, `MB`, ... count by 1000; `KiB`, `MiB`, ... by 1024.

    Raises:
        ValueError: The text is not a number with a unit of `SIZE_UNITS`.
    """
    return int(_amount(value, SIZE_PATTERN, _SIZE_SPELLINGS))


def duration_text(amount: Decimal | int) -> str:
    """Write milliseconds with the largest unit that leaves a whole number (`1500` → `1500ms`)."""
    units = ("d", "h", "m", "s")
    whole = (unit for unit in units if amount and amount % DURATION_UNITS[unit] == 0)
    unit = next(whole, "ms")
    return f"{(Decimal(amount) / DURATION_UNITS[unit]).normalize():f}{unit}"


def size_text(count: int) -> str:
    """Write bytes with the largest binary unit that leaves a whole number (`1048576` → `1 MiB`)."""
    units = ("TiB", "GiB", "MiB", "KiB")
    unit = next((unit for unit in units if count and count % SIZE_UNITS[unit] == 0), "B")
    return f"{count // SIZE_UNITS[unit]} {unit}"


def _amount(value: int | float | str, pattern: str, units: dict[str, int]) -> Decimal:
    if not isinstance(value, str):
        return Decimal(str(value))
    match = re.fullmatch(pattern, value)
    # `$` in the pattern, which editors read too, would let a final line break pass.
    if match is None or value.endswith("\n"):
        raise ValueError(f"{value!r} is not a number with a unit")
    number, unit = match.groups()
    return Decimal(number) * (units[unit] if unit else 1)
