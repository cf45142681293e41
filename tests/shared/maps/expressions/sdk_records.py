"""Records that expressions see in the tests: made by hand, and by hypothesis."""
# ruff: noqa: RUF001

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

DDL = (
    "id long, name string, code string, n long, m long, x double, y double, price decimal(12,2), "
    "flag boolean, tags array<string>, item struct<sku: string, qty: long>, day string, ts string"
)

NAMES = [
    None,
    "",
    "a",
    "Ab",
    "  padded\t\n",
    "a,b,,c",
    ",",
    "x.y.z",
    " 42 ",
    "-7",
    "+1_000",
    "4_2",
    "4__2",
    "0x10",
    "1e400",
    "-1.5e-3",
    ".5",
    "5.",
    "nan",
    "-Infinity",
    "1d",
    "9223372036854775807",
    "9223372036854775808",
    "٤٢",
    "４．５",
    "²",
    "½",
    "\x1c a\u3000\xa0\u2003b\x85",
    "Straße ﬁﬂ ŉ",
    "İstanbul ıI",
    "ǆ Ǆ ǅ",
    "ΟΔΟΣ ΣΑΣ Σ. ΑΣ\u0301Β",
    "e\u0301clair",
    "𐐀𐐨😀👩‍👩‍👧",
    "\u0000nul\u0000",
    "კაცი ᲙᲐ",
    "ﷺ\u200b\u202e",
    "a\r\nb\u2028c",
    "2024-02-29",
    "2024-W09-4",
    "20240229",
    "2024W091",
    "0000-01-01",
    "aaaa",
    "a" * 300,
    "\\d+ (x) [y] $1",
    "null",
    "'quoted' \"twice\"",
]
_CODES = [
    None, "", "a", "b", "aa", ",", " ", "xy", "7", "-0", "1_0", "ß", "Σ", "😀", "\u0301", "İ",
    "01.02.24", "1.2.70", "31.2.99", "12/31/1999 23:59", "2/3/2024 4:5", "13/1/2024 1:1", "３.4.05",
]  # fmt: skip
INTEGERS = [None, 0, 1, -1, 2, 3, -3, 7, -7, 10, 255, 1234567, -98765, 10**15, 2**53 + 1,
             2**63 - 1, -(2**63), -(2**63) + 1]  # fmt: skip
FLOATS = [None, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 1 / 3, 1e16, -1e22, 1e-7, 123456.789,
           5e-324, 1.7976931348623157e308, 9.223372036854775e18, 2.0**63, -(2.0**63),
           math.inf, -math.inf, math.nan]  # fmt: skip
DAYS = [None, "2024-02-29", "2023-02-29", "0001-01-01", "9999-12-31", "0000-01-01", "1969-12-31",
         "20240229", "2024-W09-4", "2020-W53-7", "2021-W53-1", "2024W09", "2024-W09", "2024-W00-1",
         "2024-W10-8", "0001-W01-1", "9999-W52-6", "2024-2-29", " 2024-02-29", "2024-02-29 ", "",
         "2024-13-01", "１９９９-12-31", "2024-02-2９"]  # fmt: skip
TIMES = [None, "2024-02-29T23:59:59", "2024-02-29T23:59:60", "2024-02-29T1:2:3",
          "1999-12-31T00:00:00.5", "1999-12-31T00:00:00.123456", "0001-01-01T00:00:00",
          "9999-12-31T23:59:59", "2024-02-30T00:00:00", "2024-02-29t12:00:00",
          "2024-02-29T12:00:00Z", "2024-02-29T12:00:00.1234567", "", "2024-02-29",
          "2024-2-9T24:00:00", "2024-02-29T٢٣:00:00", "0000-01-01T00:00:00"]  # fmt: skip
PRICES = [None, Decimal("0.00"), Decimal("-3.99"), Decimal("12.50"), Decimal("9999999999.99")]
TAGS: list[Any] = [None, [], ["a"], ["a", None], ["x", "y", ""], ["😀", "é"]]
_ITEMS: list[Any] = [None, {"sku": "s", "qty": 2}, {"sku": None, "qty": None}]


def _cycled(values: list[Any], at: int, step: int) -> Any:
    return values[at * step % len(values)]


def handmade() -> list[dict[str, Any]]:
    """Return records in which every special value occurs, beside different others."""
    return [
        {
            "id": at,
            "name": _cycled(NAMES, at, 1),
            "code": _cycled(_CODES, at, 7),
            "n": _cycled(INTEGERS, at, 5),
            "m": _cycled(INTEGERS, at, 7),
            "x": _cycled(FLOATS, at, 3),
            "y": _cycled(FLOATS, at, 5),
            "price": _cycled(PRICES, at, 1),
            "flag": [None, True, False][at % 3],
            "tags": _cycled(TAGS, at, 1),
            "item": _cycled(_ITEMS, at, 1),
            "day": _cycled(DAYS, at, 1),
            "ts": _cycled(TIMES, at, 1),
        }
        for at in range(len(NAMES) * 3)
    ]


def _or_none(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


_TEXTS = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="aAbBzσΣß ,.-_0419\t\u00a0\u0301", max_size=12),
    st.from_regex(r"\A\s?[+-]?[0-9][0-9_]{0,20}(\.[0-9]{0,3})?([eE]-?[0-9]{1,3})?\s?\Z"),
    st.dates().map(str),
    st.datetimes().map(lambda at: at.isoformat()),
    st.sampled_from([name for name in NAMES if name is not None]),
)
_LONGS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-12, 12))

records = st.fixed_dictionaries(
    {
        "id": st.integers(0, 10**9),
        "name": _or_none(_TEXTS),
        "code": _or_none(_TEXTS),
        "n": _or_none(_LONGS),
        "m": _or_none(_LONGS),
        "x": _or_none(st.floats()),
        "y": _or_none(st.floats(-100, 100)),
        "price": _or_none(st.decimals(-(10**9), 10**9, places=2)),
        "flag": _or_none(st.booleans()),
        "tags": _or_none(st.lists(_or_none(st.text(max_size=3)), max_size=3)),
        "item": _or_none(
            # A struct has its fields in one order, a record's dict any.
            st.fixed_dictionaries(
                {"sku": _or_none(st.text(max_size=3)), "qty": _or_none(_LONGS)}
            ).map(lambda item: {"sku": item["sku"], "qty": item["qty"]})
        ),
        "day": _or_none(st.dates().map(str) | _TEXTS),
        "ts": _or_none(st.datetimes().map(lambda at: at.isoformat()) | _TEXTS),
    }
)
"""Records of any values that their columns can hold."""
