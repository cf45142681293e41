"""Tables of files compared with their source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from file_tables import Table, rewrite_here, struct
from pyspark.sql import SparkSession

from shared.errors import DestinationError, SettingsError
from target_spark.core.differences import TableDifference, Verification
from target_spark.destinations.destination import Flush, Tools
from target_spark.operate.file_operations import FileOperations
from target_spark.run_settings import TargetConfig

Rows = Sequence[tuple[Any, ...]]
COLUMNS = struct("a bigint, b string, c string")
ROWS = [(1, "01", 'x,\n"y"'), (2, None, None), (3, "a b", "z"), (5, "01", "z")]


def operations(table: Table, spark: SparkSession | None) -> FileOperations:
    tools: Any = Tools(lambda: spark, rewrite_here)  # type: ignore[arg-type, return-value]
    return FileOperations(TargetConfig(format=table.form), table.destination, tools)


def compared(
    spark: SparkSession, table: Table, *parts: Rows, ddl: str = "", **how: Any
) -> TableDifference:
    actual: list[TableDifference] = []
    wanted = Verification(**{"report": actual.append, "ranges": 4, **how})
    supplied = Table(str(table.folder.parent), table.form, partition_by=table.layout.partition_by)
    supplied.method = "overwrite"
    asked = replace(supplied.request(struct(ddl) if ddl else COLUMNS), keys=("a",))
    write, flushes = supplied.destination.prepare(asked), list[Flush]()
    for number, rows in enumerate(parts):
        created = (
            supplied.divided(write, rows) if write.partition_by else [supplied.part(write, rows)]
        )
        flushes.append(Flush("s", f"t{number}", write, asked, tuple(created)))
    operations(supplied, spark).verify(flushes, wanted)
    assert len(actual) == 1
    return actual[0]


def before(tmp_path: Path, form: str, *names: str) -> Table:
    table = Table(str(tmp_path), form, partition_by=names)
    table.destination.commit(table.flush(COLUMNS, ROWS))
    table.destination.finish(table.request(COLUMNS))
    return table


@pytest.mark.spark
@pytest.mark.parametrize(
    ("form", "names"),
    [("parquet", ["b"]), pytest.param("csv", ["b"], marks=pytest.mark.slow), ("json", [])],
)
def test_what_differs_is_found(
    tmp_path: Path, spark: SparkSession, form: str, names: list[str]
) -> None:
    table = before(tmp_path, form, *names)
    files = sorted(table.folder.rglob("*"))
    source = [ROWS[1], (3, "a b", "new"), (4, "01", "z"), ROWS[0]]
    actual = compared(spark, table, [(1, "2", "old"), (2, "x", "old")], source)
    assert actual.left == "1 missing, 1 changed, 1 vanished"
    assert (actual.source_rows, actual.table_rows) == (4, 4)
    assert sorted(table.folder.rglob("*")) == files, "the table is as it was"


@pytest.mark.spark
def test_keys_alone_and_columns_that_a_table_lacks(tmp_path: Path, spark: SparkSession) -> None:
    table = before(tmp_path, "parquet")
    keys = [(one,) for one, *_ in [*ROWS[1:], (9,)]]
    assert compared(spark, table, keys, ddl="a bigint", deletes=True).left == "1 vanished"
    assert compared(spark, table, []).left == "4 vanished"
    table.destination.commit(table.flush(COLUMNS, ROWS[:1]))
    wider = [(*row, "more") for row in ROWS]
    actual = compared(spark, table, wider, ddl="a bigint, b string, c string, d string")
    assert actual.left == "1 doubled, without the columns d"


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="does not exist"):
        compared(None, Table(str(tmp_path / "none")), [(1, "x", "y")])  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="only be compared on a local disk and on S3"):
        operations(Table("memory://bucket/tables"), None)
