"""Random tables and streams: after a change a table does not need another one."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812
from table_plans import applied, plan, request, sources

from shared.errors import SettingsError
from shared.formats.json_schema import common_scalar
from target_spark.tables.table_changes import Capabilities, NameRules

SCALARS = st.sampled_from(
    [
        T.ByteType(),
        T.IntegerType(),
        T.LongType(),
        T.FloatType(),
        T.DoubleType(),
        T.DecimalType(10, 2),
        T.DecimalType(38, 10),
        T.StringType(),
        T.VarcharType(5),
        T.BooleanType(),
        T.DateType(),
        T.TimestampType(),
        T.TimestampNTZType(),
        T.TimeType(6),
        T.BinaryType(),
        T.VariantType(),
        T.DayTimeIntervalType(0, 1),
        T.NullType(),
    ]
)
NAMES = st.sampled_from(["a", "A", "a b", "a_b", "a__string", "b", "_sdc_deleted_at"])


def structs(types: st.SearchStrategy[T.DataType]) -> st.SearchStrategy[T.StructType]:
    fields = st.builds(T.StructField, NAMES, types, st.booleans())
    return st.lists(fields, min_size=1, max_size=5, unique_by=lambda f: f.name).map(T.StructType)


TYPES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        structs(inner),
        st.builds(T.ArrayType, inner),
        st.builds(T.MapType, st.just(T.StringType()), inner),
    ),
    max_leaves=6,
)
TABLES = structs(TYPES)
RULES = st.builds(
    NameRules,
    style=st.sampled_from(["keep", "clean", "upper"]),
    forbidden=st.sampled_from(["", " "]),
    ignore_case=st.booleans(),
)


def columns_a(*fields: tuple[str, T.DataType]) -> T.StructType:
    """Return columns with one of structs."""
    struct = T.StructType([T.StructField(name, kind) for name, kind in fields])
    return T.StructType().add("A", struct)


@settings(max_examples=300, deadline=None)
@given(st.lists(TABLES, min_size=1, max_size=4), RULES, st.sampled_from(["suffix", "cast"]))
@example(
    [columns_a(("A", T.ByteType())), columns_a(("a", T.ByteType()), ("A", T.StringType()))],
    NameRules(ignore_case=True),
    "suffix",
)
@example(
    [
        columns_a(("a b", T.ByteType()), ("a_b", T.StringType())),
        columns_a(("a b", T.StringType())),
    ],
    NameRules(forbidden=" "),
    "suffix",
)
def test_every_stream_finds_its_place(
    streams: list[T.StructType], rules: NameRules, conflicts: str
) -> None:
    """A change never needs another one, and two names never share a column."""
    table: T.StructType | None = None
    existing: dict[str, str] = {}
    owners: dict[str, str] = {}
    homes: dict[tuple[str, str], str] = {}
    for stream in streams:
        asked = request(stream)
        change = plan(table, asked, conflicts, rules=rules, renamed=existing)
        table, existing = applied(table, change), dict(change.renamed)
        again = plan(table, asked, conflicts, rules=rules, renamed=existing)
        assert not again.alters and again.renamed == existing
        assert sources(again) == sources(change)
        assert [item.target for item in change.projection] == table.names
        assert len({rules.fold(name) for name in table.names}) == len(table.names)
        given_by = [item.source for item in change.projection if item.source is not None]
        assert sorted(given_by) == sorted(stream.names)
        for item in change.projection:
            if item.source is None:
                continue
            assert owners.setdefault(item.target, item.source) == item.source
            kind = stream[item.source].dataType.json()
            if conflicts == "suffix":
                assert homes.setdefault((item.source, kind), item.target) == item.target


@pytest.mark.parametrize("kind", [T.StringType(), T.ByteType()])
def test_a_column_of_a_property_gets_no_values_of_another(kind: T.DataType) -> None:
    """Also if its name is that of a suffixed column, and the stream has the property no more."""
    one = T.StructType().add("a", T.ByteType()).add("a__string", kind)
    first = plan(None, request(one), "suffix")
    table, two = applied(None, first), request(T.StructType().add("a", T.StringType()))
    change = plan(table, two, "suffix", renamed=dict(first.renamed))
    (new,) = change.add
    assert new.name not in one.names
    assert [item.source for item in change.projection] == [None, None, "a"]
    again = plan(applied(table, change), two, "suffix", renamed=dict(change.renamed))
    assert not again.alters
    assert sources(again) == sources(change)


@settings(max_examples=200, deadline=None)
@given(TABLES, TABLES)
def test_fail_gives_an_error_or_a_table_that_holds_both(
    one: T.StructType, two: T.StructType
) -> None:
    table = applied(None, plan(None, request(one)))
    try:
        change = plan(table, request(two))
    except SettingsError as error:
        assert "orders" in str(error)
        return
    grown = applied(table, change)
    for stream in (one, two):
        assert not plan(grown, request(stream), can=Capabilities(nested=False)).alters


@given(TABLES, TABLES, st.randoms())
@example(
    T.StructType().add("a", T.ByteType()).add("a__string", T.ByteType()),
    T.StructType().add("a", T.StringType()),
    Random(0),
)
def test_the_order_of_columns_changes_nothing(
    one: T.StructType, two: T.StructType, chance: Random
) -> None:
    table = applied(None, plan(None, request(one)))
    shuffled = T.StructType(chance.sample(two.fields, len(two.fields)))
    try:
        plain = plan(table, request(two), "suffix")
    except SettingsError:
        with pytest.raises(SettingsError):
            plan(table, request(shuffled), "suffix")
        return
    other = plan(table, request(shuffled), "suffix")
    assert sources(plain) == sources(other)
    assert plain.mapping == other.mapping


@given(SCALARS, SCALARS)
def test_common_types_hold_both(one: T.DataType, two: T.DataType) -> None:
    common = common_scalar(one, two)
    if common is not None:
        assert common_scalar(common, one) == common
        assert common_scalar(common, two) == common
    assert (common is None) == (common_scalar(two, one) is None)
    assert common_scalar(one, one) == one
