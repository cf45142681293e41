"""docs/databases.md says what the program does."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import types as T  # noqa: N812

from target_spark.destinations.databases.database_tables import PROPERTIES
from target_spark.destinations.databases.mysql import mysql_sql
from target_spark.destinations.databases.postgresql import postgresql_sql

PAGE = (Path(__file__).parents[4] / "docs" / "databases.md").read_text(encoding="utf-8")
TEXT = PAGE.split("## Load into databases\n")[1]
ROWS = [line.split("|") for line in TEXT.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize(
    ("column", "types"), [(2, postgresql_sql.TYPES), (3, mysql_sql.TYPES)], ids=["pg", "mysql"]
)
def test_every_type_is_in_the_table(column: int, types: dict[type[T.DataType], str]) -> None:
    for kind, sql in types.items():
        name = kind.typeName() if kind not in _NAMES else _NAMES[kind]
        (row,) = [row for row in ROWS if name in [part.strip() for part in row[1].split(",")]]
        assert f"`{sql}`" in row[column], name


_NAMES = {
    T.ByteType: "byte",
    T.ShortType: "short",
    T.IntegerType: "int",
    T.LongType: "long",
    T.DayTimeIntervalType: "interval day to second",
    T.YearMonthIntervalType: "interval year to month",
    T.TimeType: "time",
}


@pytest.mark.parametrize("kind", PROPERTIES)
def test_every_property_is_named(kind: str) -> None:
    section = TEXT.split("## Connections")[1].lower()
    for name in PROPERTIES[kind].allowed:
        assert f"`{name}`" in section
