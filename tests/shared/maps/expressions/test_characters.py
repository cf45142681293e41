"""Characters as Python knows them, over all of Unicode."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shared.maps.expressions import scalars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
# Letters without case, symbols, and what is no character: none of them gets a case by the policies
# of Unicode, or is skipped beside a sigma. Each seed takes a share of them.
ALIKE = {"Lo", "So", "Sm", "No", "Co", "Cn"}
SHARES = 50
SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}"
# No longer passed over in words in the Unicode of Spark, so that a sigma before it is another.
MOVED = {0x1171E}


def is_alike(char: str) -> bool:
    is_cased = char.islower() or char.isupper() or {char.upper(), char.lower()} != {char}
    return unicodedata.category(char) in ALIKE and not is_cased


def written(folder: Path, codes: Iterable[int]) -> str:
    path = str(folder / "characters.parquet")
    pq.write_table(pa.table({"s": pa.array([chr(code) for code in codes])}), path)
    return path


def columns_of(spark: SparkSession, path: str, created: dict) -> dict[str, list]:
    frame = spark.read.parquet(path).coalesce(1)
    return (
        frame.select(*(column.alias(name) for name, column in created.items()))
        .toArrow()
        .to_pydict()
    )


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.soak
def test_every_character(spark: SparkSession, tmp_path: Path, seed: int):
    """All of them with as many seeds as there are shares; in one job, as planning it takes long."""
    from pyspark.sql import functions as F  # noqa: N812

    alike = [code for code in ALL if is_alike(chr(code))]
    shared = alike[seed % SHARES :: SHARES]
    codes = shared if seed else [*shared, *sorted({*ALL} - {*alike})]
    s = F.col("s")
    alone = {
        "upper": scalars.upper(s),
        "lower": scalars.lower(s),
        "strip": F.btrim(s, F.lit(scalars.WHITESPACE)),
        "digits": scalars.number_text(F.concat(F.lit("7"), s, F.lit("7"))),
    }
    around = {"a": ("A", SIGMA), "b": (SIGMA, ""), "c": ("A" + SIGMA, "B"), "d": ("A" + SIGMA, "")}
    beside = {
        name: scalars.lower(F.concat(F.lit(before), s, F.lit(after)))
        for name, (before, after) in around.items()
    }
    actual = columns_of(spark, written(tmp_path, codes), {"s": s, **alone, **beside})
    assert actual["s"] == [chr(code) for code in codes]
    wrong = set()
    for at, char in enumerate(actual["s"]):
        for name in ("upper", "lower", "strip"):
            assert actual[name][at] == getattr(char, name)(), (hex(ord(char)), name)
        digit = str(unicodedata.decimal(char)) if char.isdecimal() else char
        assert actual["digits"][at] == f"7{digit}7"
        for name, (before, after) in around.items():
            if actual[name][at] != f"{before}{char}{after}".lower():
                wrong.add(ord(char))
    assert wrong <= MOVED


def test_white_space():
    assert scalars.WHITESPACE.split() == []
    assert "\x1c" in scalars.WHITESPACE and "\x1c" not in scalars.NUMBER_SPACE
    assert "\u200b" not in scalars.WHITESPACE


def test_text_around_numbers_is_what_python_allows():
    for code in (*range(0x300), *map(ord, scalars.WHITESPACE), 0x200B, 0xFEFF):
        char = chr(code)
        if char in "+-_0123456789":
            continue
        try:
            allowed = int(f"{char}7{char}") == 7
        except ValueError:
            allowed = False
        assert allowed == (char in scalars.NUMBER_SPACE), hex(code)
