"""How a table changes, and where its columns come from then."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from pyspark.sql import types as T  # noqa: N812
from table_plans import NONE, applied, plan, request, sources, struct

from shared.errors import SettingsError, Where
from target_spark.core.load_plans import SchemaContract, TableRequest
from target_spark.tables.table_changes import Capabilities, NameRules, Projected, TableChange

SPACES = NameRules(forbidden=" ", ignore_case=True)


def failure(*args: object, **kwargs: object) -> str:
    with pytest.raises(SettingsError) as caught:
        plan(*args, **kwargs)  # type: ignore[arg-type]
    return str(caught.value)


# New tables.


def test_a_new_table_has_the_columns_of_the_stream() -> None:
    schema = {"properties": {"id": {"description": "The number"}, "x": {"description": 3}}}
    change = plan(None, request("id BIGINT NOT NULL, x STRUCT<a: INT NOT NULL>", schema=schema))
    assert change.create is not None
    ids, other = change.create
    assert (ids.name, ids.source, ids.nullable, ids.comment) == ("id", "id", False, "The number")
    assert (other.nullable, other.comment) == (True, None)
    assert other.dtype == struct("a INT")
    assert not change.alters
    assert [item.how for item in change.projection] == ["as is", "as is"]


def test_names_are_made_legal_at_any_depth() -> None:
    columns = "`a b` INT, x ARRAY<STRUCT<`c d`: INT, m: MAP<STRING, STRUCT<`e f`: INT>>>>"
    change = plan(None, columns, rules=SPACES)
    table = applied(None, change)
    assert table == struct("a_b INT, x ARRAY<STRUCT<c_d: INT, m: MAP<STRING, STRUCT<e_f: INT>>>>")
    assert change.projection[1].how == "cast"
    assert dict(change.projection[1].names) == {
        ("x", "element", "c_d"): "c d",
        ("x", "element", "m", "value", "e_f"): "e f",
    }
    assert change.mapping["a b"] == "a_b"


def test_fields_keep_their_names_when_similar_ones_come() -> None:
    first = plan(None, "x STRUCT<`a b`: INT>", rules=SPACES)
    table = applied(None, first)
    then = plan(table, "x STRUCT<a_b: INT, `a b`: INT>", rules=SPACES, renamed=first.renamed)
    [(path, dtype)] = then.add_nested
    assert path[0] == "x" and path[1].startswith("a_b_") and dtype == T.IntegerType()
    assert (path, "a_b") in then.projection[0].names
    assert (("x", "a_b"), "a b") in then.projection[0].names


def test_a_stream_without_columns_has_no_table() -> None:
    assert "stream 'orders'" in failure(None, request(T.StructType([])))


# Columns that come and go.


def test_new_columns_are_added_at_the_end_and_nullable() -> None:
    change = plan("id INT", "new STRING NOT NULL, id INT")
    assert [(c.name, c.nullable) for c in change.add] == [("new", True)]
    assert sources(change) == {"id": "id", "new": "new"}
    assert change.create is None and change.alters


def test_columns_that_stop_coming_are_null() -> None:
    change = plan("id INT, old STRING", "id INT")
    assert change.projection[1] == Projected("old", None, T.StringType(), "null")
    assert not change.alters


def test_the_order_of_columns_is_the_tables() -> None:
    change = plan("a INT, b STRING, c DATE", "c DATE, a INT, b STRING")
    assert [item.target for item in change.projection] == ["a", "b", "c"]
    assert not change.alters and change.mapping == {"a": "a", "b": "b", "c": "c"}


def test_columns_with_a_default_are_left_to_it() -> None:
    table = struct("id INT NOT NULL, at DATE NOT NULL")
    table.fields[0].metadata = {"default": True}
    change = plan(table, "at DATE NOT NULL")
    assert sources(change) == {"at": "at"} and change.nullable == ()
    assert sources(plan(table, "id INT NOT NULL, at DATE NOT NULL")) == {"id": "id", "at": "at"}


# NOT NULL.


@pytest.mark.parametrize("columns", ["id INT", "id INT, x INT"])
def test_not_null_goes_where_nulls_may_come(columns: str) -> None:
    table = "id INT NOT NULL, x INT NOT NULL"
    change = plan(table, columns)
    assert change.nullable == ("id", "x")
    assert all(field.nullable for field in applied(struct(table), change))
    assert plan(table, "id INT NOT NULL, x INT NOT NULL").nullable == ()


# Types.

LOSSLESS = [
    ("TINYINT", "SMALLINT", "SMALLINT"),
    ("INT", "BIGINT", "BIGINT"),
    ("FLOAT", "DOUBLE", "DOUBLE"),
    ("INT", "DOUBLE", "DOUBLE"),
    ("SMALLINT", "FLOAT", "FLOAT"),
    ("INT", "FLOAT", "DOUBLE"),
    ("INT", "DECIMAL(12,2)", "DECIMAL(12,2)"),
    ("BIGINT", "DECIMAL(20,0)", "DECIMAL(20,0)"),
    ("BIGINT", "DECIMAL(10,2)", "DECIMAL(22,2)"),
    ("DECIMAL(10,2)", "DECIMAL(12,2)", "DECIMAL(12,2)"),
    ("DECIMAL(10,2)", "DECIMAL(10,4)", "DECIMAL(12,4)"),
    ("DATE", "TIMESTAMP_NTZ", "TIMESTAMP_NTZ"),
    ("INTERVAL DAY", "INTERVAL HOUR TO SECOND", "INTERVAL DAY TO SECOND"),
    ("INTERVAL YEAR", "INTERVAL MONTH", "INTERVAL YEAR TO MONTH"),
    ("VOID", "STRUCT<a: INT>", "STRUCT<a: INT>"),
]


@pytest.mark.parametrize(("old", "new", "wider"), LOSSLESS)
def test_types_are_widened_where_nothing_is_lost(old: str, new: str, wider: str) -> None:
    change = plan(f"x {old}", f"x {new}")
    [(path, before, after)] = change.widen
    assert path == ("x",)
    assert (before, after) == (struct(f"x {old}")["x"].dataType, struct(f"x {wider}")["x"].dataType)
    assert change.projection[0].dtype == after


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *((wider, old) for old, new, wider in LOSSLESS),
        *((wider, new) for old, new, wider in LOSSLESS),
        ("BIGINT", "DECIMAL(18,0)"),
        ("DECIMAL(19,0)", "BIGINT"),
        ("STRING", "VARCHAR(9)"),
        ("STRING", "VOID"),
        ("TIME(6)", "TIME(3)"),
    ],
)
def test_narrower_types_are_cast(old: str, new: str) -> None:
    change = plan(f"x {old}", f"x {new}", can=NONE)
    assert not change.alters
    same = old == new or "VARCHAR" in new
    assert (change.projection[0].how == "as is") == (old == new)
    assert same or change.projection[0].how in {"cast", "text"}
    assert change.projection[0].dtype == struct(f"x {old}")["x"].dataType


CONFLICTS = [
    ("BIGINT", "DOUBLE"),
    ("BIGINT", "STRING"),
    ("STRING", "BIGINT"),
    ("DECIMAL(10,2)", "DOUBLE"),
    ("DECIMAL(38,0)", "DECIMAL(38,10)"),
    ("BIGINT", "DECIMAL(38,20)"),
    ("DATE", "TIMESTAMP"),
    ("TIMESTAMP", "TIMESTAMP_NTZ"),
    ("BOOLEAN", "INT"),
    ("STRING", "STRUCT<a: INT>"),
    ("STRUCT<a: INT>", "ARRAY<INT>"),
    ("STRUCT<a: INT>", "STRUCT<a: STRING>"),
    ("MAP<INT, STRING>", "MAP<BIGINT, STRING>"),
    ("VARIANT", "STRING"),
    ("STRING", "BINARY"),
]


@pytest.mark.parametrize(("old", "new"), CONFLICTS)
def test_types_that_have_nothing_in_common_fail(old: str, new: str) -> None:
    text = failure(f"x {old}", f"x {new}")
    assert "column 'x'" in text and "stream 'orders'" in text and "`type_conflicts`" in text
    for kind in (old, new):
        assert struct(f"x {kind}")["x"].dataType.simpleString() in text


def test_long_types_are_shortened_in_messages() -> None:
    fields = ", ".join(f"field_{n}: INT" for n in range(50))
    assert len(failure("x INT", f"x STRUCT<{fields}>")) < 500


def test_what_a_format_cannot_widen_is_a_conflict() -> None:
    assert "bigint" in failure("x INT", "x BIGINT", can=NONE)
    ints = Capabilities(widen=lambda old, new: isinstance(new, T.LongType))
    assert plan("x INT", "x BIGINT", can=ints).widen
    assert failure("x FLOAT", "x DOUBLE", can=ints)


def test_a_format_may_take_other_types() -> None:
    def takes(old: T.DataType, new: T.DataType) -> bool:
        return isinstance(old, T.TimestampNTZType) and isinstance(new, T.TimestampType)

    change = plan("x TIMESTAMP_NTZ", "x TIMESTAMP", can=Capabilities(takes=takes))
    assert change.projection[0].how == "cast" and not change.alters


def test_sized_text() -> None:
    table = T.StructType([T.StructField("x", T.VarcharType(5))])
    assert plan(table, request(table)).projection[0].how == "as is"
    long = T.StructType([T.StructField("x", T.VarcharType(9))])
    assert plan(table, request(long)).widen[0][2] == T.VarcharType(9)
    assert plan(table, "x STRING").widen[0][2] == T.StringType()
    assert not plan("x STRING", request(long)).alters


# Nested columns.


def test_structs_grow_at_any_depth() -> None:
    table = "x STRUCT<a: INT, l: ARRAY<STRUCT<b: INT>>, m: MAP<STRING, STRUCT<c: FLOAT>>>"
    elements = "l: ARRAY<STRUCT<e: STRING>>, new: INT"
    stream = f"x STRUCT<m: MAP<STRING, STRUCT<c: DOUBLE, d: DATE>>, {elements}>"
    change = plan(table, stream)
    assert dict(change.add_nested) == {
        ("x", "l", "element", "e"): T.StringType(),
        ("x", "m", "value", "d"): T.DateType(),
        ("x", "new"): T.IntegerType(),
    }
    assert change.widen == ((("x", "m", "value", "c"), T.FloatType(), T.DoubleType()),)
    assert applied(struct(table), change) == struct(
        "x STRUCT<a: INT, l: ARRAY<STRUCT<b: INT, e: STRING>>, "
        "m: MAP<STRING, STRUCT<c: DOUBLE, d: DATE>>, new: INT>"
    )


def test_lists_and_maps_of_scalars_widen() -> None:
    change = plan("l ARRAY<INT>, m MAP<STRING, INT>", "l ARRAY<BIGINT>, m MAP<STRING, BIGINT>")
    assert [step[0] for step in change.widen] == [("l", "element"), ("m", "value")]


def test_keys_of_maps_may_only_be_narrower() -> None:
    assert not plan("m MAP<BIGINT, INT>", "m MAP<INT, INT>", can=NONE).alters


def test_formats_without_nested_changes() -> None:
    flat = Capabilities(widen=lambda old, new: True, nested=False)
    assert "struct" in failure("x STRUCT<a: INT>", "x STRUCT<a: INT, b: INT>", can=flat)
    assert not plan("x STRUCT<a: INT, b: INT>", "x STRUCT<b: INT>", can=flat).alters


def test_fields_that_differ_by_case_are_matched_in_tables_of_others() -> None:
    change = plan("x STRUCT<Aa: INT>", "x STRUCT<aa: INT>", rules=NameRules(ignore_case=True))
    assert change.projection[0].names == ((("x", "Aa"), "aa"),) and not change.add_nested


# Keys and partitions.


@pytest.mark.parametrize("conflicts", ["fail", "suffix", "cast"])
@pytest.mark.parametrize(
    ("old", "new"), [("BIGINT", "STRING"), ("STRING", "INT"), ("INT", "DOUBLE")]
)
def test_keys_do_not_change_their_type(conflicts: str, old: str, new: str) -> None:
    text = failure(f"id {old}, x INT", request(f"id {new}, x INT", "id"), conflicts)
    assert "the key 'id'" in text and old.lower() in text and new.lower() in text
    assert "stream 'orders'" in text and "another table" in text


def test_keys_may_become_wider_numbers_of_the_same_kind() -> None:
    assert plan("id INT", request("id BIGINT", "id")).widen
    assert not plan("id BIGINT", request("id INT", "id")).alters


def test_partition_columns_do_not_change_their_type() -> None:
    asked = request("day STRING", partition_by=["day"])
    assert "the partition column 'day'" in failure("day DATE", asked, "suffix")
    assert "the partition column 'at'" in failure(
        "at TIMESTAMP", request("at DATE", partition_by=["days(at)"]), "cast"
    )


def test_a_partition_column_that_is_missing_is_an_error() -> None:
    with pytest.raises(SettingsError, match=r"setting 'partition_by': .*'day'"):
        plan("id INT, day DATE", request("id INT", partition_by=["day"]))


# Conflicts that go to another column.


def test_values_of_another_type_get_a_column_of_their_own() -> None:
    change = plan("amount BIGINT", "amount STRING", "suffix")
    assert [(c.name, c.source, c.dtype) for c in change.add] == [
        ("amount__string", "amount", T.StringType())
    ]
    assert sources(change) == {"amount": None, "amount__string": "amount"}
    assert change.projection[0].how == "null"


def test_each_type_finds_its_column_again() -> None:
    table, existing = struct("amount BIGINT"), {}
    for kind in ("STRING", "BOOLEAN", "STRING", "INT", "DOUBLE", "FLOAT", "BOOLEAN"):
        change = plan(table, f"amount {kind}", "suffix", renamed=existing)
        table, existing = applied(table, change), dict(change.renamed)
    assert table == struct(
        "amount BIGINT, amount__string STRING, amount__boolean BOOLEAN, amount__double DOUBLE"
    )
    assert sources(plan(table, "amount INT", "suffix", renamed=existing))["amount"] == "amount"


def test_types_of_a_kind_share_a_column_while_it_can_hold_them() -> None:
    table = "x STRING, x__decimal DECIMAL(10,2)"
    assert plan(table, "x DECIMAL(12,2)", "suffix").widen[0][0] == ("x__decimal",)
    change = plan(table, "x DECIMAL(12,2)", "suffix", can=NONE)
    assert [column.name for column in change.add] == ["x__decimal_12_2"]


def test_nested_types_are_told_apart_by_a_digest() -> None:
    fields = ", ".join(f"field_{n}: STRING" for n in range(9))
    table = applied(struct("x INT"), plan("x INT", "x STRUCT<a: INT>", "suffix"))
    assert table.names == ["x", "x__struct"]
    grown = plan(table, f"x STRUCT<{fields}>", "suffix")
    assert len(grown.add_nested) == 9 and not grown.add
    change = plan(table, f"x STRUCT<{fields}>", "suffix", can=NONE)
    assert change.add[0].name.startswith("x__struct_")


def test_a_column_that_only_looks_like_it_is_not_taken() -> None:
    change = plan("x INT, x__string STRING", "x STRING, x__string STRING", "suffix")
    [created] = change.add
    assert created.name.startswith("x__string_") and created.source == "x"
    assert sources(change)["x__string"] == "x__string"


def test_the_suffix_obeys_the_rules_of_names() -> None:
    upper = NameRules("upper")
    assert plan("X INT", "x STRING", "suffix", rules=upper).add[0].name == "X__STRING"
    short = NameRules(max_bytes=30)
    name = "n" * 30
    change = plan(f"{name} INT", f"{name} STRING", "suffix", rules=short)
    assert len(change.add[0].name) == 30 and change.add[0].name != name


def test_a_suffix_column_of_another_type_is_an_error() -> None:
    assert "x__string" in failure("x INT, x__string DATE", "x STRING", "suffix", can=NONE)


# Conflicts that end in text.


def test_other_values_go_to_text_as_text() -> None:
    for kind in ("BIGINT", "STRUCT<a: INT>", "TIMESTAMP", "VARIANT"):
        change = plan("x STRING", f"x {kind}", "cast")
        assert change.projection[0] == Projected("x", "x", T.StringType(), "text")
        assert not change.alters


def test_a_column_of_another_type_is_rewritten_as_text() -> None:
    change = plan("x BIGINT, y INT", "x STRUCT<a: INT>, y INT", "cast")
    assert change.rewrite == (("x", T.StringType()),)
    assert change.projection[0].how == "text" and change.widen == ()


def test_a_rewrite_keeps_the_kind_where_it_can() -> None:
    change = plan("x BIGINT", "x DECIMAL(10,2)", "cast", can=NONE)
    assert change.rewrite == (("x", T.DecimalType(22, 2)),)
    nested = plan("x STRUCT<a: INT>", "x STRUCT<b: INT>", "cast", can=NONE)
    assert nested.rewrite == (("x", struct("a INT, b INT")),)


def test_sized_text_becomes_text_of_any_size() -> None:
    table = T.StructType([T.StructField("x", T.VarcharType(3))])
    assert plan(table, "x BIGINT", "cast").widen == ((("x",), T.VarcharType(3), T.StringType()),)
    assert plan(table, "x BIGINT", "cast", can=NONE).rewrite == (("x", T.StringType()),)


# What is known.


def test_what_is_known_of_other_columns_is_kept() -> None:
    change = plan("id INT, a_b INT", "id INT", renamed={"a b": "a_b"})
    assert change.mapping["a b"] == "a_b"


def test_only_what_does_not_go_without_saying_is_stored() -> None:
    ours = plan(None, "id INT, `a b` INT", rules=SPACES)
    assert sorted(ours.renamed.values()) == ["1", "a_b"]
    others = plan("ID INT", "id INT, x INT", rules=SPACES)
    assert others.renamed == {"id": "ID", "x": "x"}


def test_names_that_differ_by_case_stay_apart_over_runs() -> None:
    first = plan(None, "Id INT", rules=SPACES)
    table = applied(None, first)
    then = plan(table, "id STRING", rules=SPACES, renamed=first.renamed)
    table = applied(table, then)
    assert table.names[0] == "Id" and table.names[1].startswith("id_")
    both = plan(table, "id STRING, Id INT", rules=SPACES, renamed=then.renamed)
    assert sources(both) == {"Id": "Id", table.names[1]: "id"} and not both.alters


def test_a_column_somebody_dropped_is_added_again() -> None:
    assert plan("id INT", "id INT, `a b` INT", renamed={"a b": "a_b"}).add[0].name == "a_b"


def contract(
    table: str | None, asked: str | TableRequest, conflicts: str = "fail", **parts: str
) -> TableChange:
    asked = request(asked) if isinstance(asked, str) else asked
    return plan(table, replace(asked, contract=SchemaContract(**parts)), conflicts)


NEW = "a INT, s STRUCT<x: INT, l: ARRAY<STRUCT<y: INT, z: INT>>>, b INT"
OLD = "a INT, s STRUCT<x: INT, l: ARRAY<STRUCT<y: INT>>>"


def test_a_new_table_keeps_its_contract() -> None:
    assert contract(None, NEW, columns="freeze", types="freeze") == plan(None, NEW)
    assert contract(NEW, NEW, columns="freeze", types="freeze") == plan(NEW, NEW)


@pytest.mark.parametrize(
    ("old", "new", "parts", "what"),
    [
        ("a INT", "a INT, b INT", {"columns": "freeze"}, "has no column 'b', and must not change"),
        (f"{OLD}, b INT", NEW, {"columns": "freeze"}, "has no field 's.l.element.z'"),
        ("a INT", "a BIGINT", {"types": "freeze"}, "'a' is int in the table and bigint in the"),
        ("a INT", "a STRING", {"types": "freeze"}, "'a' is int in the table and string in the"),
        ("a INT", "a STRING", {"columns": "freeze"}, "has no column 'a__string'"),
    ],
)
def test_frozen_tables(old: str, new: str, parts: dict[str, str], what: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(what)) as caught:
        contract(old, new, "suffix", **parts)
    [part] = parts
    assert caught.value.where == Where(stream="orders", setting=f"schema_contract.{part}")


def test_new_columns_and_fields_are_left_out() -> None:
    change = contract(OLD, NEW, columns="discard")
    assert not change.alters
    assert applied(struct(OLD), change) == struct(OLD)
    assert sources(change) == {"a": "a", "s": "s"}
    change = contract("a INT NOT NULL", "a STRING NOT NULL", "suffix", columns="discard")
    assert change.projection == (Projected("a", None, T.IntegerType(), "null"),)
    assert (change.nullable, change.supplied(["a"])) == (("a",), {"a"})


def test_columns_that_a_load_needs_are_not_left_out() -> None:
    for asked in (
        request("a INT, k INT", "k"),
        request("a INT, k INT", order_by=("k",)),
        request("a INT, k INT", partition_by=["k"]),
    ):
        with pytest.raises(SettingsError, match="has no column 'k'"):
            contract("a INT", asked, columns="discard")


def test_types_stay_and_values_must_fit() -> None:
    old, new = "a INT NOT NULL, b STRING, c BIGINT", "a BIGINT NOT NULL, b INT, c INT"
    change = contract(old, new, "cast", types="discard")
    assert not change.widen and not change.rewrite
    assert change.nullable == ("a",), "a value that does not fit is null"
    assert [(item.dtype, item.how) for item in change.projection] == [
        (T.IntegerType(), "exact"),
        (T.StringType(), "exact"),
        (T.LongType(), "cast"),
    ]
    with pytest.raises(SettingsError, match=r"schema_contract\.types"):
        contract("k INT", request("k BIGINT", "k"), types="discard")
