"""Every encoding x compression x storage: awkward values written and read again, exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shared.formats.arrow_types import struct_to_arrow
from shared.formats.file_formats import FORMATS, Encoding
from shared.formats.json_schema import spark_to_json_schema
from shared.settings.batch_settings import COMPRESSIONS
from shared.storage.access import StorageOptions
from shared.storage.urls import join
from shared.testing import STRUCT, TABLE, awkward
from target_spark.convert.read_plan import Piece, ReadPlan
from target_spark.convert.read_rows import UnreadableInputError, read_task
from target_spark.convert.task_reports import Rejects
from target_spark.core.load_plans import InputFile

CASES = [(name, codec) for name in COMPRESSIONS for codec in FORMATS[name].compressions]


def write(url: str, form: str, codec: str, options: StorageOptions) -> None:
    table = awkward(FORMATS[form])
    FORMATS[form].write(url, table.schema, [table.slice(0, 3), table.slice(3)], codec, options)


def read(url: str, form: str, label: str, options: StorageOptions) -> tuple[pa.Table, Rejects]:
    piece = Piece(InputFile(url, Encoding(form, label)))
    plan = ReadPlan(
        ((piece,),), spark_to_json_schema(STRUCT), struct_to_arrow(STRUCT), options=options
    )
    rejects = Rejects()
    return pa.concat_tables(read_task(plan, [piece], rejects)), rejects


def check(url: str, form: str, codec: str, options: StorageOptions) -> None:
    write(url, form, codec, options)
    for label in {codec, "gzip", "none"}:
        actual, rejects = read(url, form, label, options)
        assert rejects.reported == []
        assert repr(actual.to_pylist()) == repr(TABLE.to_pylist())


@pytest.mark.parametrize(("form", "codec"), CASES)
def test_on_disk(form: str, codec: str, tmp_path: Path) -> None:
    check(str(tmp_path / "ä b"), form, codec, StorageOptions())


@pytest.mark.parametrize(("form", "codec"), CASES)
def test_on_s3(form: str, codec: str, server: Any) -> None:
    check(join(server.folder(), "ä b"), form, codec, StorageOptions(server.options))


@pytest.mark.parametrize("form", COMPRESSIONS)
def test_missing_and_cut_on_s3(form: str, server: Any) -> None:
    options = StorageOptions(server.options)
    url = join(server.folder(), "x")
    with pytest.raises(UnreadableInputError) as missing:
        read(url, form, "none", options)
    assert missing.value.args[0] == url
    write(url, form, "bzip2" if FORMATS[form].packed else "none", options)
    from shared.storage.files import open_output, open_random

    with open_random(url, options) as source:
        data = source.read()
    with open_output(url, options=options) as sink:
        sink.write(data[:-9])
    with pytest.raises(UnreadableInputError):
        read(url, form, "none", options)


def test_texts_of_csv(tmp_path: Path) -> None:
    write(str(tmp_path / "x"), "csv", "none", StorageOptions())
    head = (tmp_path / "x").read_bytes().splitlines()[0].decode()
    assert head.startswith('"id","byte","exact"')
    last = (tmp_path / "x").read_bytes().rstrip().rpartition(b"\n")[2]
    assert last == b"1" + b"," * (len(STRUCT.names) - 1), "a null is empty"
    assert json.loads(awkward(FORMATS["csv"]).column("in.side")[0].as_py())["a b.c"] > 0
