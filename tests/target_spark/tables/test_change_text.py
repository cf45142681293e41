"""Changes of a table in words."""

from __future__ import annotations

from pyspark.sql import types as T  # noqa: N812

from target_spark.destinations.files.stored_columns import struct_change
from target_spark.tables.table_changes import (
    VARIANT,
    Column,
    TableChange,
    change_lines,
)

INT, LONG, TEXT = T.IntegerType(), T.LongType(), T.StringType()


def test_a_new_table() -> None:
    change = TableChange(create=(Column("a", "a", INT), Column("b", "b", TEXT)))
    assert change_lines(change) == ("create the table with the columns a int, b string",)
    struct = T.StructType().add("a", INT).add("b", TEXT)
    assert struct_change(None, struct.fields) == change_lines(change)


def test_each_step() -> None:
    change = TableChange(
        add=(Column("c", "C", TEXT),),
        add_nested=((("a", "x"), INT),),
        widen=((("b",), INT, LONG),),
        rewrite=(("d", TEXT),),
        nullable=("e",),
        partitions=(("days(`at`)", "hours(`at`)"), (None, "`c`"), ("`d`", None)),
    )
    assert change_lines(change) == (
        "add the column 'c' (string)",
        "add the field 'a.x' (int)",
        "widen 'b' from int to bigint",
        "rewrite the table for 'd' as string",
        "allow nulls in 'e'",
        "partition new rows by hours(at) instead of days(at)",
        "partition new rows by c",
        "no longer partition new rows by d",
    )
    assert change_lines(TableChange()) == ()


def test_names_that_differ_from_those_of_the_stream() -> None:
    mapping = {"A B": "a_b", "old": "o", "x": "x", f"x{VARIANT}string": "x__string"}
    new = tuple(Column(name, name, TEXT) for name in ("a_b", "x", "x__string"))
    assert change_lines(TableChange(add=new, mapping=mapping))[3:] == ("store 'A B' as 'a_b'",)
    created = change_lines(TableChange(create=new, mapping=mapping))
    assert created[1:] == ("store 'A B' as 'a_b'",)


def test_columns_of_files() -> None:
    old, new = T.StructType().add("a", INT), T.StructType().add("a", LONG).add("b", TEXT)
    assert struct_change(old, new.fields) == (
        "add the column 'b' (string)",
        "widen 'a' from int to bigint",
    )
    assert struct_change(old, old.fields) == ()


def test_long_types_are_cut() -> None:
    wide = T.StructType([T.StructField(f"name{n}", INT) for n in range(50)])
    [text] = change_lines(TableChange(add=(Column("s", "s", wide),)))
    assert text.endswith("...)")
    assert len(text) < 90
