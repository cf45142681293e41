"""docs/databases.md names every type and every rejected property."""

from __future__ import annotations

from pathlib import Path

import pytest

from tap_spark.sources.jdbc.dialects import duckdb, mysql, oracle, postgresql, sqlserver
from tap_spark.stream_config import DANGEROUS

PAGE = (Path(__file__).parents[4] / "docs" / "databases.md").read_text(encoding="utf-8")
TEXT = PAGE.split("## Load into databases\n")[0]
TYPES = {
    "PostgreSQL": postgresql.SCALARS,
    "MySQL and MariaDB": {
        n: t for n, t in mysql.TYPES.items() if t[1] not in ("{}", "ST_AsText({})")
    },
    "DuckDB": duckdb.TYPES,
    "SQL Server": sqlserver.TYPES,
    "Oracle": oracle.TYPES,
}


@pytest.mark.parametrize("database", TYPES)
def test_types(database: str) -> None:
    table = TEXT.split(f"**{database}**\n")[1].split("\n**")[0].split("\n### ")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    for name, (kind, *_) in TYPES[database].items():
        (read_as,) = [row[2] for row in rows if f"`{name}`" in row[1]]
        assert kind in read_as, name


@pytest.mark.parametrize("database", DANGEROUS)
def test_refused_properties(database: str) -> None:
    names = ", ".join(f"`{name}`" for name in DANGEROUS[database].split())
    assert f"- {database}: {names}" in TEXT
