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
# Ideographs, Hangul syllables, private use, and planes that have no characters: by the policies of
# Unicode none of them gets a case, or is skipped beside a sigma. Each test takes a share of them.
ALIKE = (
    *(range(0x3400, 0x4DC0), range(0x4E00, 0xA000), range(0xAC00, 0xD7A4), range(0xE000, 0xF900)),
    *(range(0x20000, 0xE0000), range(0xE1000, 0x110000)),
)
SHARES = 50
SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}"
# No longer passed over in words in the Unicode of Spark, so that a sigma before it is another.
MOVED = {0x1171E}


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
def test_every_character_alone(spark: SparkSession, tmp_path: Path):
    from pyspark.sql import functions as F  # noqa: N812

    s = F.col("s")
    actual = columns_of(
        spark,
        written(tmp_path, ALL),
        {
            "s": s,
            "upper": scalars.upper(s),
            "lower": scalars.lower(s),
            "strip": F.btrim(s, F.lit(scalars.WHITESPACE)),
            "digits": scalars.number_text(F.concat(F.lit("7"), s, F.lit("7"))),
        },
    )
    for at, char in enumerate(actual["s"]):
        for name in ("upper", "lower", "strip"):
            assert actual[name][at] == getattr(char, name)(), (hex(ord(char)), name)
        digit = str(unicodedata.decimal(char)) if char.isdecimal() else char
        assert actual["digits"][at] == f"7{digit}7"


@pytest.mark.spark
@pytest.mark.costly
def test_every_character_beside_a_sigma(spark: SparkSession, tmp_path: Path):
    alike = {code for block in ALIKE for code in block[1:-1]}
    assert wrong_beside_a_sigma(spark, tmp_path, (c for c in ALL if c not in alike)) <= MOVED


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.soak
def test_every_character_of_no_case_beside_a_sigma(spark: SparkSession, tmp_path: Path, seed: int):
    """All of them with as many seeds as there are shares."""
    codes = [code for block in ALIKE for code in block[seed % SHARES :: SHARES]]
    assert wrong_beside_a_sigma(spark, tmp_path, codes) == set()


def wrong_beside_a_sigma(spark: SparkSession, folder: Path, codes: Iterable[int]) -> set[int]:
    """Return the characters beside which lower case is not as in Python."""
    from pyspark.sql import functions as F  # noqa: N812

    s = F.col("s")
    around = {"a": ("A", SIGMA), "b": (SIGMA, ""), "c": ("A" + SIGMA, "B"), "d": ("A" + SIGMA, "")}
    created = {
        name: scalars.lower(F.concat(F.lit(before), s, F.lit(after)))
        for name, (before, after) in around.items()
    }
    actual = columns_of(spark, written(folder, codes), {"s": s, **created})
    return {
        ord(char)
        for at, char in enumerate(actual["s"])
        for name, (before, after) in around.items()
        if actual[name][at] != f"{before}{char}{after}".lower()
    }


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
