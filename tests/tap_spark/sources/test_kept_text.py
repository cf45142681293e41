"""CSV values that arrive after the types were fixed: kept as written, or an error."""

from __future__ import annotations

import gzip
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import functions as F  # noqa: N812
from tap_runs import failure, read_all, rows, stream

from shared.spark.session import try_cast
from tap_spark.config import TapConfig
from tap_spark.plan.discovery import catalog_for
from tap_spark.sources.files.text_types import add_forms, decide, keeps_text
from tap_spark.sources.source_failures import source_error

pytestmark = pytest.mark.spark

KEPT = {
    "bigint": ["0", "-1", "9223372036854775807", "-9223372036854775808"],
    "int": ["2147483647", "-5"],
    "double": ["1", "1.5", "1.50", "-0.25", "123456789012345", "0.30000000000000004", "0.0"],
    "float": ["1.5", "100", "0.1"],
    "decimal(38,2)": ["1", "1.5", "1.50", "-0.01"],
    "decimal(38,0)": ["12345678901234567890", "-1"],
    "boolean": ["true", "false"],
    "date": ["2024-02-29", "0001-01-01"],
    "timestamp_ntz": ["2024-01-01 00:00:00", "2024-01-01T00:00:00.5", "2024-01-01T00:00:00.123456"],
    "timestamp": ["2024-01-01T00:00:00Z", "2024-01-01 00:00:00.1+02:00"],
}
LOST = {
    "bigint": ["007", " 7", "7 ", "+1", "-0", "1.0", "1.5", "1e3", "9223372036854775808", "x", ""],
    "int": ["2147483648", "01"],
    "double": ["007", " 7", "+1", "12345678901234567890", "0.1234567890123456789", "1e5", "NaN",
               "1.5d", "9007199254740993", "Infinity", ".5", "1.", "1_0"],
    "float": ["0.123456789", "16777217"],
    "decimal(38,2)": ["1.505", "01.50", "+1.50", " 1.50", "1e2", "x"],
    "decimal(38,0)": ["1.0", "01", "1" * 39],
    "boolean": ["t", "yes", "1", "TRUE", " true"],
    "date": ["2024-1-1", "2024-01-01 10:00:00", " 2024-01-01", "2023-02-29", "2024", "0000-01-01"],
    "timestamp_ntz": ["2024-01-01", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00.1234567",
                      "2024-01-01T25:00:00"],
    "timestamp": ["2024-01-01", "2024-01-01T00:00:00", "2024-01-01T00:00:00 Europe/Berlin"],
}  # fmt: skip


def written_as(text, dtype):
    """Return whether a text keeps its text, or as a number its value, in a type."""
    return keeps_text(text, try_cast(text, dtype), dtype)


@pytest.mark.parametrize("kind", KEPT)
def test_what_a_type_keeps(spark, kind):
    dtype = spark.range(1).select(F.lit(None).cast(kind)).schema[0].dataType
    texts = KEPT[kind] + LOST[kind]
    frame = spark.createDataFrame([(text,) for text in texts], "v string")
    good = frame.select("v", F.coalesce(written_as(F.col("v"), dtype), F.lit(False)))
    assert {text for text, kept in good.collect() if kept} == set(KEPT[kind])


def test_every_inferred_type_keeps_its_values(spark):
    texts = sorted({text for part in (KEPT, LOST) for group in part.values() for text in group})
    bits = {text: add_forms(None, pa.array([text])) for text in texts}
    checks = [
        F.coalesce(written_as(F.lit(text), decide(actual)), F.lit(False)).alias(f"c{n}")
        for n, (text, actual) in enumerate(bits.items())
    ]
    kept = spark.range(1).select(*checks).head()
    assert [text for text, good in zip(bits, kept, strict=True) if not good] == []


@pytest.mark.parametrize("method", ["FULL_TABLE", "INCREMENTAL"])
def test_a_value_that_would_lose_its_text_is_named(spark, tmp_path, method):
    path = tmp_path / "zip.csv"
    path.write_text("zip,name\n10001,x\n")
    config = stream("csv", str(path), replication_method=method)
    catalog = catalog_for(spark, TapConfig(streams=(config,)))
    path.write_text("zip,name\n10001,x\n00501,y\n")
    with pytest.raises(Exception) as caught:
        read_all(spark, config, catalog=catalog)
    text = str(source_error("s", caught.value))
    for part in ("stream 's'", f"file '{path}'", "column 'zip'", "00501", "--discover", "'schema'"):
        assert part in text
    supplied = stream("csv", str(path), replication_method=method, schema="zip INT, name STRING")
    assert rows(spark, supplied)[1]["zip"] == 501


def save_as(kind, path):
    path.parent.mkdir(parents=True)
    if kind in ("parquet", "orc"):
        (pq if kind == "parquet" else orc).write_table(pa.table({"a": [1]}), path)
    else:
        texts = {"xml": "<t><r><a>1</a></r></t>", "json": '{"a":1}\n', "csv": "a\n1\n"}
        path.write_text(texts.get(kind, "1\n"))


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *((kind, "FULL_TABLE") for kind in ("csv", "json", "text", "parquet", "orc", "xml")),
        *((kind, "INCREMENTAL") for kind in ("json", "parquet")),
    ],
)
def test_a_folder_whose_text_its_type_would_lose_is_named(spark, tmp_path, kind, method):
    save_as(kind, tmp_path / "month=10" / "a")
    options = {"rowTag": "r"} if kind == "xml" else {}
    config = stream(kind, str(tmp_path), replication_method=method, options=options)
    catalog = catalog_for(spark, TapConfig(streams=(config,)))
    assert [row["month"] for row in read_all(spark, config, catalog=catalog)[0]] == [10]
    save_as(kind, tmp_path / "month=01" / "a")
    text = failure(lambda: read_all(spark, config, catalog=catalog))
    for part in (f"file '{tmp_path}/month=01/a'", "column 'month'", "as written: 01 (run --disc"):
        assert part in text
    assert {row["month"] for row in rows(spark, config)} == {"01", "10"}


def test_texts_of_folders_keep_their_types_in_xml(spark, tmp_path):
    for folder in ("flag=true", "p=1.50"):
        save_as("xml", tmp_path / folder / "a.xml")
        config = stream("xml", str(tmp_path), options={"rowTag": "r"})
        catalog = catalog_for(spark, TapConfig(streams=(config,)))
        name, _, value = folder.partition("=")
        [row] = read_all(spark, config, catalog=catalog)[0]
        assert row[name] == value
        shutil.rmtree(tmp_path / folder)


def test_utf16_and_compressed_csv_by_file(spark, tmp_path):
    wide = tmp_path / "w.csv"
    wide.write_bytes("a,b\n1,é\n".encode("utf-16"))
    for method in ("FULL_TABLE", "INCREMENTAL"):
        options = {"encoding": "UTF-16"}
        actual = rows(spark, stream("csv", str(wide), options=options, replication_method=method))
        assert actual == [{"a": 1, "b": "é"}]
    folder = tmp_path / "z"
    folder.mkdir()
    (folder / "1.csv.gz").write_bytes(gzip.compress(b"a\n1\n"))
    config = stream("csv", str(folder), replication_method="INCREMENTAL")
    actual, slices = read_all(spark, config)
    assert actual == [{"a": 1}]
    (folder / "2.csv.gz").write_bytes(gzip.compress(b"a\n2\n"))
    state = {"bookmarks": {"s": slices[-1].bookmark}}
    actual, slices = read_all(spark, config, state=state)
    assert actual == [{"a": 2}]
    assert len(slices[-1].bookmark["files"]) == 2


def test_an_emptied_file_has_no_rows(spark, tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("k,v\n1,2\n")
    for settings in ({}, {"replication_key": "k"}, {"schema": "k INT, v INT"}):
        path.write_text("k,v\n1,2\n")
        config = stream("csv", str(path), **settings)
        catalog = catalog_for(spark, TapConfig(streams=(config,)))
        for text in ("", "\n\n", "k,v\n"):
            path.write_text(text)
            assert read_all(spark, config, catalog=catalog)[0] == []
    assert rows(spark, config) == []
    path.write_text("")
    with pytest.raises(Exception, match=r"e\.csv.*no file with content was found"):
        rows(spark, stream("csv", str(path)))
