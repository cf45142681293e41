"""Schema evolution: what two schemas have in common, or why they have nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812

from shared.errors import SettingsError
from shared.formats.json_schema import merge_structs

F = T.StructField
BYTE, SHORT, INT, LONG = T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType()
FLOAT, DOUBLE, STRING, DATE = T.FloatType(), T.DoubleType(), T.StringType(), T.DateType()
NTZ, TS, BOOL, VOID = T.TimestampNTZType(), T.TimestampType(), T.BooleanType(), T.NullType()
DAYS, SECONDS = T.DayTimeIntervalType(0, 1), T.DayTimeIntervalType(1, 3)


def one(data_type: T.DataType, nullable: bool = False) -> T.StructType:
    return T.StructType([F("a", data_type, nullable)])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (BYTE, SHORT, SHORT),
        (SHORT, INT, INT),
        (INT, LONG, LONG),
        (BYTE, LONG, LONG),
        (LONG, T.DecimalType(10, 0), T.DecimalType(19, 0)),
        (INT, T.DecimalType(10, 2), T.DecimalType(12, 2)),
        (T.DecimalType(10, 2), T.DecimalType(12, 5), T.DecimalType(13, 5)),
        (T.DecimalType(15, 2), DOUBLE, DOUBLE),
        (T.DecimalType(10, 2), FLOAT, DOUBLE),
        (FLOAT, DOUBLE, DOUBLE),
        (FLOAT, SHORT, FLOAT),
        (FLOAT, INT, DOUBLE),
        (LONG, DOUBLE, DOUBLE),
        (DATE, NTZ, NTZ),
        (VOID, LONG, LONG),
        (VOID, T.ArrayType(LONG), T.ArrayType(LONG)),
        (T.CharType(3), T.VarcharType(5), STRING),
        (STRING, T.VarcharType(5), STRING),
        (DAYS, SECONDS, T.DayTimeIntervalType(0, 3)),
        (T.YearMonthIntervalType(0, 0), T.YearMonthIntervalType(1, 1), T.YearMonthIntervalType(0)),
        (T.TimeType(3), T.TimeType(6), T.TimeType(6)),
        (T.ArrayType(INT, False), T.ArrayType(LONG, True), T.ArrayType(LONG, True)),
        (T.MapType(STRING, INT, False), T.MapType(STRING, LONG), T.MapType(STRING, LONG)),
        (T.MapType(INT, INT), T.MapType(LONG, INT), T.MapType(LONG, INT)),
    ],
)
def test_widening_works_both_ways(old: T.DataType, new: T.DataType, expected: T.DataType) -> None:
    if expected == T.YearMonthIntervalType(0):
        expected = T.YearMonthIntervalType(0, 1)
    assert merge_structs(one(old), one(new)) == one(expected)
    assert merge_structs(one(new), one(old)) == one(expected)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (STRING, LONG),
        (BOOL, LONG),
        (DATE, TS),
        (NTZ, TS),
        (T.ArrayType(LONG), STRING),
        (T.StructType([]), T.MapType(STRING, STRING)),
        (T.DecimalType(38, 0), T.DecimalType(38, 38)),
        (T.DecimalType(16, 2), DOUBLE),
        (T.DecimalType(38, 0), FLOAT),
        (T.BinaryType(), STRING),
        (DAYS, T.YearMonthIntervalType(0, 1)),
        (FLOAT, STRING),
    ],
)
def test_types_without_a_common_one_are_refused(old: T.DataType, new: T.DataType) -> None:
    for first, second in ((old, new), (new, old)):
        with pytest.raises(SettingsError) as caught:
            merge_structs(one(first), one(second))
        message = str(caught.value)
        assert "column 'a'" in message
        assert first.simpleString() in message
        assert second.simpleString() in message


def test_added_and_missing_columns_at_every_depth() -> None:
    inner = T.StructType([F("x", INT, False), F("gone", STRING, False)])
    newer = T.StructType([F("x", LONG, False), F("y", DATE, False)])
    old = T.StructType([F("k", INT, False), F("l", T.ArrayType(inner, False), False)])
    new = T.StructType([F("l", T.ArrayType(newer, False), False), F("m", BOOL, False)])
    merged = T.StructType([F("x", LONG, False), F("gone", STRING), F("y", DATE)])
    assert merge_structs(old, new) == T.StructType(
        [F("k", INT), F("l", T.ArrayType(merged, False), False), F("m", BOOL)]
    )


def test_a_conflict_inside_names_its_path() -> None:
    old = one(T.MapType(STRING, T.ArrayType(T.StructType([F("b", INT)]))))
    new = one(T.MapType(STRING, T.ArrayType(T.StructType([F("b", BOOL)]))))
    with pytest.raises(SettingsError, match=r"a\.value\[\]\.b"):
        merge_structs(old, new)


NUMERIC = st.sampled_from(
    [BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, *(T.DecimalType(p, s) for p, s in ((5, 2), (15, 9)))]
)
STRUCTS = st.lists(
    st.builds(F, st.sampled_from("abcd"), NUMERIC, st.booleans()), unique_by=lambda f: f.name
).map(T.StructType)


@given(STRUCTS, STRUCTS)
def test_merging_again_changes_nothing(old: T.StructType, new: T.StructType) -> None:
    merged = merge_structs(old, new)
    assert merge_structs(merged, new).names == merged.names
    assert [f.dataType for f in merge_structs(merged, old)] == [f.dataType for f in merged]
    assert merged.names[: len(old)] == old.names
