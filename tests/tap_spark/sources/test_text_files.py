"""Headers, encodings, compression and quotes of text files: alike for each method, or an error."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from case_matrix import matrix
from pyarrow import orc
from tap_runs import failure, rows, stream

from shared.errors import SourceError

pytestmark = pytest.mark.spark
METHODS = ["FULL_TABLE", "INCREMENTAL"]


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


HEADERS = [
    (",a,b\n0,1,2\n", ",b,a\n0,2,1\n"),
    ("a,a\n1,2\n", "a,b\n1,2\n"),
    ("a,b\n1,2\n", "A,b\n1,2\n"),
    ("a,b\n1,2\n", "a,b,c\n1,2,3\n"),
    ("a,b\n1,2\n", "a\n1\n"),
    ("a,b\n1,2\n", "1,2\n"),
    ("a,b\n1,2\n", "\n\nb,a\n1,2\n"),
    (",a\n0,1\n", "\ufeffa,\n1,0\n"),
]


@pytest.mark.parametrize(("texts", "method"), matrix(HEADERS, METHODS))
def test_files_with_different_headers_are_refused_by_both_names(spark, write, method, texts):
    first, second = texts
    write("d/1.csv", first)
    path = write("d/2.csv", second)
    config = stream("csv", path.removesuffix("/2.csv"), replication_method=method)
    text = failure(lambda: rows(spark, config))
    assert path in text
    assert path.replace("2.csv", "1.csv") in text
    assert "differs from that of the other files" in text


def test_headers_that_are_the_same_once_read(spark, write, method):
    write("d/1.csv", "a,b\n1,2\n")
    write("d/2.csv", '\ufeff\n"a","b"\r\n3,4\r\n')
    path = write("d/3.csv", "a,b\n")
    config = stream("csv", path.removesuffix("/3.csv"), replication_method=method)
    assert rows(spark, config) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]


def test_a_schema_in_another_order_than_the_header_is_refused(spark, write, method):
    config = stream(
        "csv", write("a.csv", "b,x\n1,2\n"), schema="a INT, b INT", replication_method=method
    )
    assert "another place" in failure(lambda: rows(spark, config))


PACKED = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: __import__("pyarrow").compress(data, "zstd", asbytes=True),
}


@pytest.mark.parametrize(
    ("packed", "name", "method"),
    matrix([*PACKED, "plain"], ["a.csv", "a.csv.gz", "a.txt"], METHODS),
)
def test_compression_is_found_by_content(spark, write, method, packed, name):
    data = "id,v\n1,é\n2,x\n".encode()
    path = write(name, PACKED.get(packed, bytes)(data))
    config = stream("csv", path, replication_method=method)
    assert rows(spark, config) == [{"id": 1, "v": "é"}, {"id": 2, "v": "x"}]


@pytest.mark.parametrize("kind", ["csv", "text"])
def test_what_cannot_be_read_is_named(spark, write, tmp_path, method, kind):
    cut = write("cut.csv", gzip.compress(b"id\n" + b"1\n" * 9999)[:-12])
    assert cut in failure(lambda: rows(spark, stream(kind, cut, replication_method=method)))
    with zipfile.ZipFile(tmp_path / "z.csv", "w") as archive:
        archive.writestr("a.csv", "id\n1\n")
    config = stream(kind, str(tmp_path / "z.csv"), replication_method=method)
    assert "zip archive" in failure(lambda: rows(spark, config))
    wide = stream(
        kind, write("w.csv", "id,v\n1,2\n".encode("utf-16-le")), replication_method=method
    )
    assert "UTF-16LE" in failure(lambda: rows(spark, wide))


def test_bytes_of_another_encoding_are_named_by_file_and_place(spark, write, method):
    data = b"id,v\n1,a\n2,\xe9t\xe9\n"
    path = write("l.csv", data)
    text = failure(lambda: rows(spark, stream("csv", path, replication_method=method)))
    assert path in text
    assert "byte 11 (0xe9) is not text" in text
    assert "'encoding'" in text


@pytest.mark.parametrize(
    ("name", "method"),
    matrix(
        ["windows-1252", "GBK", "Shift_JIS", "UTF-16", "UTF-16LE", "UTF-32", "IBM037", "latin-1"],
        METHODS,
    ),
)
def test_encodings_of_java_and_python(spark, write, method, name):
    word = {"GBK": "中文", "Shift_JIS": "日本ソ表"}.get(name, "é")
    content = f"id,v\n1,{word}\n2,x\n".encode(name)
    config = stream(
        "csv", write("e.csv", content), options={"encoding": name}, replication_method=method
    )
    assert rows(spark, config) == [{"id": 1, "v": word}, {"id": 2, "v": "x"}]
    text = stream(
        "text", write("e.txt", content), options={"encoding": name}, replication_method=method
    )
    assert [row["value"] for row in rows(spark, text)] == ["id,v", f"1,{word}", "2,x"]


@pytest.mark.parametrize(("name", "method"), matrix(["utf-16", "utf-32", "utf-8-sig"], METHODS))
def test_a_byte_order_mark_tells_the_encoding(spark, write, method, name):
    config = stream("csv", write("b.csv", "id,v\n1,é\n".encode(name)), replication_method=method)
    assert rows(spark, config) == [{"id": 1, "v": "é"}]


def test_control_characters_stay(spark, write, method):
    odd = "\x00\x01\x1f\x7f\u2028\x85"
    config = stream("csv", write("c.csv", f"id,v\n1,a{odd}b\n2,{odd}\n"), replication_method=method)
    assert [row["v"] for row in rows(spark, config)] == [f"a{odd}b", odd]


@pytest.mark.parametrize(
    ("bad", "method"),
    matrix(['1,"a\nb"\n', '1,"a\n2,b\n', '1,"a\n2,b"\n', '1,x\n2,"'], METHODS),
)
def test_a_value_that_its_line_does_not_end_is_an_error(spark, write, method, bad):
    path = write("q.csv", "id,v\n" + bad + ("" if bad.endswith("\n") else "\n"))
    text = failure(lambda: rows(spark, stream("csv", path, replication_method=method)))
    assert path in text
    assert "a quoted value has no end" in text
    assert "multiLine" in text


def test_values_with_line_ends_keep_them(spark, write, method):
    values = ["a\r\nb", "\n", "x\ry", 'q"\r\n"', "plain", "\r\n\r\n"]
    lines = "".join('{},"{}",z\r\n'.format(n, v.replace('"', '""')) for n, v in enumerate(values))
    path = write("m.csv", "id,v,w\r\n" + lines)
    config = stream("csv", path, options={"multiLine": "true"}, replication_method=method)
    actual = rows(spark, config)
    assert [row["v"] for row in actual] == values
    assert {row["w"] for row in actual} == {"z"}
    open_ = stream(
        "csv", write("n.csv", 'id,v\n1,"a\n'), options={"multiLine": "true"},
        replication_method=method,
    )  # fmt: skip
    assert "a quoted value has no end" in failure(lambda: rows(spark, open_))


def test_quotes_inside_of_values_and_long_separators(spark, write, method):
    config = stream(
        "csv", write("s.csv", 'a||b\n5" pipe||x\n"y||z"||"w"\n'), options={"sep": "||"},
        replication_method=method,
    )  # fmt: skip
    assert [tuple(row.values()) for row in rows(spark, config)] == [('5" pipe', "x"), ("y||z", "w")]


@pytest.mark.parametrize(("line", "method"), matrix(["1", "1,2,3", "1,2,"], METHODS))
def test_lines_of_too_few_or_too_many_values(spark, write, method, line):
    bad = stream("csv", write("r.csv", f"a,b\n1,2\n{line}\n"), replication_method=method)
    assert "too few or too many values" in failure(lambda: rows(spark, bad))


def test_unknown_encodings_are_refused():
    from tap_spark.sources.formats import BUILT_IN
    from tap_spark.sources.source_declaration import option_problems

    for name, good in (("windows-1252", True), ("GBK", True), ("nonsense", False)):
        actual = list(option_problems("csv", BUILT_IN["csv"].options, {"encoding": name}))
        assert (actual == []) is good


def test_a_folder_without_files_says_so(spark, tmp_path, method):
    (tmp_path / "_hidden.csv").write_text("a\n1\n")
    with pytest.raises(SourceError, match="no file"):
        rows(spark, stream("csv", str(tmp_path), replication_method=method))


@pytest.mark.parametrize("kind", ["parquet", "orc", "json", "avro"])
def test_an_empty_folder_is_named_for_every_format(spark, tmp_path, kind):
    (tmp_path / "d").mkdir()
    text = failure(lambda: rows(spark, stream(kind, str(tmp_path / "d"))))
    assert "no file" in text
    assert str(tmp_path / "d") in text


@pytest.mark.parametrize(
    ("name", "method"),
    matrix(["a:b.csv", "a%20b.csv", "a b.csv", "a[1].csv", "ä.csv"], METHODS),
)
def test_names_of_files_do_not_matter(spark, write, method, name):
    path = write("d/" + name, "id\n1\n")
    for place in (path, path.rpartition("/")[0], path.rpartition("/")[0] + "/*.csv"):
        config = stream("csv", place, replication_method=method)
        assert rows(spark, config) == [{"id": 1}], place


def test_a_name_that_spark_cannot_read_is_named(spark, tmp_path):
    (tmp_path / "a:b.xml").write_text("<t><r><a>1</a></r></t>")
    config = stream("xml", str(tmp_path), options={"rowTag": "r"})
    text = failure(lambda: rows(spark, config))
    assert "':' in their names: a:b.xml" in text
    (tmp_path / "a:b.xml").rename(os.fsdecode(os.fsencode(tmp_path) + b"/\xe9.xml"))
    schema = stream("xml", str(tmp_path), options={"rowTag": "r"}, schema="a INT")
    for one in (config, schema):
        with pytest.raises(SourceError, match="not UTF-8"):
            rows(spark, one)


@pytest.mark.parametrize(("kind", "method"), matrix(["json", "orc", "parquet"], METHODS))
def test_a_name_that_arrow_reads(spark, tmp_path, method, kind):
    path = tmp_path / f"a:b.{kind}"
    if kind == "json":
        path.write_text('{"a":1}\n')
    else:
        (orc if kind == "orc" else pq).write_table(pa.table({"a": [1]}), path)
    config = stream(kind, str(tmp_path), replication_method=method)
    assert rows(spark, config) == [{"a": 1}]


def test_xml_has_the_encoding_that_it_declares(spark, write, method):
    text = '<?xml version="1.0" encoding="ISO-8859-1"?><t><r><a>é</a></r></t>'
    options = {"rowTag": "r"}
    config = stream(
        "xml", write("a.xml", text.encode("latin-1")), options=options, replication_method=method
    )
    assert rows(spark, config) == [{"a": "é"}]
    path = write("b.xml", "<t><r><a>é</a></r></t>".encode("latin-1"))
    config = stream("xml", path, options=options, schema="a STRING", replication_method=method)
    assert path in failure(lambda: rows(spark, config))


def test_files_that_only_spark_can_unpack_follow_the_same_rules(spark, write):
    import zlib

    def path(*texts):
        for number, text in enumerate(texts):
            actual = write(f"z/{number}.csv.deflate", zlib.compress(text))
        return actual.rpartition("/")[0]

    config = stream("csv", path(b"# x\na,b\n1,2\n", b"\na,b\r\n3,4\n"), options={"comment": "#"})
    assert sorted(row["a"] for row in rows(spark, config)) == [1, 3]
    for second, problem in (
        (b"b,a\n4,3\n", "differs from that of the other files"),
        (b"a,b\n\xe9,4\n", "is not text"),
        (b'a,b\n"3,4\n', "a quoted value has no end"),
    ):
        bad = stream("csv", path(b"a,b\n1,2\n", second))
        text = failure(lambda bad=bad: rows(spark, bad))
        assert problem in text
        # Spark chooses which of two headers comes first.
        assert "z/1.csv.deflate" in text or "differs" in problem
