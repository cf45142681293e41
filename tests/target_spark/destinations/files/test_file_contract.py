"""`schema_contract` of file tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from table_plans import struct

from shared.encodings.encoding_format import Encoding
from shared.errors import SettingsError
from target_spark.core.load_plans import SchemaContract, TableName, TableRequest
from target_spark.destinations.files.file_destination import FileDestination
from target_spark.destinations.files.stored_columns import contracted
from tests.helpers.file_tables import rewrite_here

OLD = struct("id BIGINT, name STRING, s STRUCT<a:INT>")


def columns(ddl: str, **contract: str) -> Any:
    request = TableRequest("st", struct(ddl), TableName("t"), contract=SchemaContract(**contract))
    return contracted(OLD, request)


@pytest.mark.parametrize(
    ("ddl", "part", "text"),
    [
        ("id BIGINT, more INT", "columns", "the table has no column 'more', and must not change"),
        ("s STRUCT<a:INT,b:INT>", "columns", "the table lacks a field of the column 's', and must"),
        ("name INT", "types", "column 'name' is string in the table and int in the stream"),
        ("s STRUCT<a:BIGINT>", "types", "column 's' is struct<a:int> in the table and struct<a:b"),
    ],
)
def test_a_frozen_table_does_not_change(ddl: str, part: str, text: str) -> None:
    with pytest.raises(SettingsError, match=text) as refused:
        columns(ddl, **{part: "freeze"})
    assert (refused.value.where.setting, refused.value.where.stream) == (
        f"schema_contract.{part}",
        "st",
    )
    assert columns(ddl) == struct(ddl)


def test_what_the_table_holds_is_let_in() -> None:
    fitting = "name STRING, id INT, s STRUCT<a:SMALLINT>"
    assert columns(fitting, columns="freeze", types="freeze") == struct(fitting)


def test_columns_and_fields_are_left_out() -> None:
    wider = "id BIGINT, more INT, s STRUCT<b:INT,a:INT>"
    assert columns(wider, columns="discard") == struct("id BIGINT, s STRUCT<a:INT>")
    assert columns(wider, columns="discard", types="freeze") == struct("id BIGINT, s STRUCT<a:INT>")


def test_columns_of_versions_are_never_left_out() -> None:
    with pytest.raises(SettingsError, match="no column '_sdc_valid_from'"):
        columns("id BIGINT, _sdc_valid_from TIMESTAMP", columns="discard")


def test_a_new_table_has_all_columns(tmp_path: Path) -> None:
    contract = SchemaContract(columns="freeze", types="freeze")
    request = TableRequest("st", struct("x INT"), TableName("t"), contract=contract)
    destination = FileDestination(str(tmp_path), Encoding("parquet"), rewrite_here)
    assert destination.prepare(request).struct == struct("x INT")
    destination.finish(request)
