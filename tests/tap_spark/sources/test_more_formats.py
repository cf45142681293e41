"""Avro, XML, fixed-width and multi-line CSV files, read through plans as a run does."""

from __future__ import annotations

import gzip
import io
import json
import logging
from datetime import date, datetime, time
from decimal import Decimal
from uuid import UUID

import fastavro
import pytest
from case_matrix import matrix
from tap_runs import failure, read_all, rows, stream, types

from tap_spark.sources.files.columnar_files import schema_text
from tap_spark.sources.formats import FixedColumn

pytestmark = [pytest.mark.spark, pytest.mark.costly]


def state_of(slices) -> dict:
    return {"bookmarks": {"s": slices[-1].bookmark}}


# --- Avro


def raw_avro(path, fields: dict, *, name: str = "r") -> str:
    """Write rows of raw values under types with logical ones, as other writers do."""
    own = [{"name": n, "type": kind} for n, (kind, _) in fields.items()]
    schema = {"type": "record", "name": name, "fields": own}
    raw, body = fastavro.parse_schema(plain(schema)), io.BytesIO()
    count = len(next(iter(fields.values()))[1])
    for row in range(count):
        fastavro.schemaless_writer(body, raw, {n: v[row] for n, (_, v) in fields.items()})
    parts = [b"avro.schema", json.dumps(schema).encode(), b"avro.codec", b"null"]
    header = b"".join(long_bytes(len(part)) + part for part in parts)
    block = long_bytes(count) + long_bytes(body.tell()) + body.getvalue()
    path.write_bytes(b"Obj\x01\x04" + header + b"\0" + b"s" * 16 + block + b"s" * 16)
    return str(path)


def plain(node):
    if isinstance(node, list):
        return [plain(part) for part in node]
    if not isinstance(node, dict):
        return node
    return {k: plain(v) if k != "name" else v for k, v in node.items() if k != "logicalType"}


def long_bytes(number: int) -> bytes:
    number, actual = (number << 1) ^ (number >> 63), b""
    while number > 127:
        number, actual = number >> 7, actual + bytes([number & 127 | 128])
    return actual + bytes([number])


def logical(kind: str, name: str, /, **more) -> dict:
    return {"type": kind, "logicalType": name, **more}


NANOS = logical("long", "timestamp-nanos")
RECORDS = [
    {"type": "record", "name": n, "fields": [{"name": n[-1], "type": t}]}
    for n, t in (("ra", "int"), ("rb", NANOS))
]
UUID_TEXT = "12345678-1234-5678-1234-567812345678"
AVRO_TYPES = {
    "nanos": (NANOS, [1_000_000_001_000, -1000], "timestamp"),
    "local": (logical("long", "local-timestamp-nanos"), [1_000_000_001_000, 0], "timestamp_ntz"),
    "local_millis": (logical("long", "local-timestamp-millis"), [1, 0], "timestamp_ntz"),
    "time": (logical("int", "time-millis"), [3_600_001, 86_399_999], "time(6)"),
    "micros": (["null", logical("long", "time-micros")], [3_600_000_001, None], "time(6)"),
    "duration": (
        logical("fixed", "duration", name="d", size=12),
        [b"\1\0\0\0\2\0\0\0\3\0\0\0", bytes(12)],
        "string",
    ),
    "uuid": (logical("string", "uuid"), [UUID_TEXT, ""], "string"),
    "fixed_uuid": (
        logical("fixed", "uuid", name="u", size=16),
        [bytes.fromhex(UUID_TEXT.replace("-", "")), bytes(16)],
        "string",
    ),
    "decimal": (
        logical("bytes", "decimal", precision=10, scale=2),
        [b"\x7b", b"\xff"],
        "decimal(10,2)",
    ),
    "fixed_decimal": (
        logical("fixed", "decimal", name="f", size=4, precision=9, scale=1),
        [b"\0\0\0\x0b", b"\xff" * 4],
        "decimal(9,1)",
    ),
    "wide": (logical("bytes", "decimal", precision=60, scale=3), [b"\x7f" * 20, b"\xff"], "string"),
    "big": (logical("bytes", "big-decimal"), [b"\x02\x7b\x04", b"\x02\xff\x00"], "string"),
    "not_logical": (logical("bytes", "uuid"), [b"ab", b""], "binary"),
    "union": (["null", "int", "string", "boolean", "bytes"], [7, "x"], "string"),
    "bools": (["int", "boolean"], [True, 1], "string"),
    "number": (["int", "double"], [1, 1.5], "string"),
    "records": (["null", *RECORDS], [{"a": 1}, {"b": 1000}], "string"),
    "named": ("u", [bytes(16), bytes(16)], "string"),
    "longs": (["int", "long"], [1, 2**40], "long"),
    "times": (
        {"type": "array", "items": ["null", logical("int", "time-millis")]},
        [[1, None], []],
        None,
    ),
    "map": ({"type": "map", "values": ["null", NANOS]}, [{"k": 1000, "l": None}, {}], None),
    "nothing": ("null", [None, None], "string"),
}


@pytest.mark.server
def test_avro_types_of_other_writers(lake_spark, tmp_path):
    raw_avro(
        tmp_path / "a.avro", {n: (kind, values) for n, (kind, values, _) in AVRO_TYPES.items()}
    )
    config = stream("avro", str(tmp_path))
    kinds = types(lake_spark, config)
    assert {n: kinds[n] for n, (_, _, k) in AVRO_TYPES.items() if k} == {
        n: k for n, (_, _, k) in AVRO_TYPES.items() if k
    }
    first, second = rows(lake_spark, config)
    assert first == {
        "nanos": datetime(1970, 1, 1, 0, 16, 40, 1),
        "local": datetime(1970, 1, 1, 0, 16, 40, 1),
        "local_millis": datetime(1970, 1, 1, 0, 0, 0, 1000),
        "time": time(1, 0, 0, 1000),
        "micros": time(1, 0, 0, 1),
        "duration": "P1M2DT0.003S",
        "uuid": UUID_TEXT,
        "fixed_uuid": UUID_TEXT,
        "decimal": Decimal("1.23"),
        "fixed_decimal": Decimal("1.1"),
        "wide": "727885129180488904360266563744972327436484050.815",
        "big": "1.23",
        "not_logical": b"ab",
        "union": "7",
        "bools": "true",
        "number": "1",
        "records": '{"a":1}',
        "named": str(UUID(int=0)),
        "longs": 1,
        "times": [time(0, 0, 0, 1000), None],
        "map": {"k": datetime(1970, 1, 1, 0, 0, 0, 1), "l": None},
        "nothing": None,
    }
    assert second["nanos"] == datetime(1969, 12, 31, 23, 59, 59, 999999)
    assert (second["micros"], second["duration"], second["wide"]) == (None, "PT0S", "-0.001")
    assert (second["union"], second["bools"], second["number"]) == ("x", "1", "1.5")
    assert (second["records"], second["times"], second["map"]) == (
        '{"b":"1970-01-01T00:00:00.000001+00:00"}',
        [],
        {},
    )


@pytest.mark.server
@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (NANOS, 1, "give it the type STRING by 'schema'"),
        ({"type": "array", "items": NANOS}, [1], "STRING"),
        (logical("int", "time-millis"), 86_400_000, "86400000 is not within a day"),
        (logical("bytes", "big-decimal"), b"x", "78 is not a big-decimal"),
        (["int", logical("long", "timestamp-micros")], 1, "a union whose types"),
    ],
)
def test_avro_values_that_no_type_keeps(lake_spark, tmp_path, kind, value, words):
    path = raw_avro(tmp_path / "b.avro", {"id": ("int", [1]), "at": (kind, [value])})
    raw_avro(tmp_path / "a.avro", {"id": ("int", [1]), "at": ("null", [None])})
    text = failure(lambda: rows(lake_spark, stream("avro", str(tmp_path))))
    assert path in text
    assert "column 'at" in text
    assert words in text


@pytest.mark.server
def test_avro_columns_by_setting(lake_spark, tmp_path):
    folder = tmp_path / "day=01"
    folder.mkdir()
    raw_avro(folder / "a.avro", {"at": (NANOS, [1_000_000_001]), "n": ("int", [1])})
    raw_avro(folder / "b.avro", {"n": ("long", [2])}, name="other")
    config = stream("avro", str(tmp_path), schema="at STRING, n BIGINT, day STRING")
    actual = sorted(rows(lake_spark, config), key=lambda row: row["n"])
    assert actual == [
        {"at": "1970-01-01T00:00:01.000000001Z", "n": 1, "day": "01"},
        {"at": None, "n": 2, "day": "01"},
    ]
    assert types(lake_spark, stream("avro", str(tmp_path)))["day"] == "string"
    # As in catalogs of before.
    assert rows(lake_spark, stream("avro", str(folder / "a.avro"), schema="at BIGINT")) == [
        {"at": 1_000_000_001}
    ]


def avro(spark, folder, sql: str, name: str) -> None:
    target = folder / name
    spark.sql(sql).coalesce(1).write.format("avro").save(str(target / "tmp"))
    (file,) = (target / "tmp").glob("*.avro")
    file.rename(folder / f"{name}.avro")


@pytest.mark.server
def test_avro_columns_are_those_of_all_files(lake_spark, tmp_path):
    spark, folder = lake_spark, tmp_path / "in"
    folder.mkdir()
    avro(spark, tmp_path, "SELECT 1 AS id, 'x' AS a, 1.50BD AS d", "one")
    avro(spark, tmp_path, "SELECT 2L AS id, DATE '2026-01-01' AS b", "two")
    for name in ("one", "two"):
        (tmp_path / f"{name}.avro").rename(folder / f"{name}.avro")
    config = stream("avro", str(folder))
    assert types(spark, config) == {
        "id": "long",
        "a": "string",
        "d": "decimal(3,2)",
        "b": "date",
    }
    actual = sorted(rows(spark, config), key=lambda row: row["id"])
    assert actual == [
        {"id": 1, "a": "x", "d": Decimal("1.50"), "b": None},
        {"id": 2, "a": None, "d": None, "b": date(2026, 1, 1)},
    ]
    assert rows(spark, config, deselect=["a", "d", "b"]) != []


@pytest.mark.server
def test_avro_is_resumed_by_file(lake_spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    avro(lake_spark, tmp_path, "SELECT 1 AS id", "one")
    (tmp_path / "one.avro").rename(folder / "one.avro")
    config = stream("avro", str(folder), replication_method="INCREMENTAL")
    actual, slices = read_all(lake_spark, config)
    assert actual == [{"id": 1}]
    avro(lake_spark, tmp_path, "SELECT 2 AS id", "two")
    (tmp_path / "two.avro").rename(folder / "two.avro")
    state = state_of(slices)
    actual, slices = read_all(lake_spark, config, state=state)
    assert actual == [{"id": 2}]
    assert read_all(lake_spark, config, state=state_of(slices)) == ([], [])


@pytest.mark.server
def test_avro_types_that_have_none_in_common(lake_spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    avro(lake_spark, tmp_path, "SELECT 1 AS id", "one")
    avro(lake_spark, tmp_path, "SELECT array(1) AS id", "two")
    for name in ("one", "two"):
        (tmp_path / f"{name}.avro").rename(folder / f"{name}.avro")
    text = failure(lambda: types(lake_spark, stream("avro", str(folder))))
    assert "the files disagree" in text
    assert "id" in text


@pytest.mark.server
def test_files_that_are_not_avro(lake_spark, write):
    path = write("a.avro", "no avro at all")
    text = failure(lambda: types(lake_spark, stream("avro", path)))
    assert "it is not an Avro file" in text
    assert "a.avro" in text


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"Obj\x01\x02\x16avro.schema\x04{}\x00", b"{}"),
        (b"Obj\x01\x04\x02k\x02v\x16avro.schema\x04{}\x00", b"{}"),
        (b"Obj\x01\x01\x1e\x16avro.schema\x04{}\x00", b"{}"),
        (b"Obj\x01\x00", ValueError),
        (b"Obj\x01\x02\x16avro.schema\x40{}", EOFError),
        (b"Obj\x01\x02\x16avro", EOFError),
        (b"Obj\x01\x02\x01", ValueError),
        (b"Obj\x01" + b"\xff" * 12, ValueError),
        (b"Obj", ValueError),
        (b"", ValueError),
    ],
)
def test_the_schema_in_the_head(head, expected):
    if isinstance(expected, bytes):
        assert schema_text(io.BytesIO(head)) == expected
    else:
        with pytest.raises(expected):
            schema_text(io.BytesIO(head))


# --- XML

BOOKS = """<?xml version="1.0" encoding="UTF-8"?>
<books>
  <book id="007"><zip>00501</zip><pages>12</pages><price>1.50</price>
    <by><name>Ada</name><born>1815</born></by><tag>a</tag><tag>b</tag></book>
  <book id="008"><zip>10001</zip><pages>345</pages><price>20.25</price>
    <by><name>Zoë</name></by><tag>c</tag></book>
</books>
"""


def xml(path, **settings):
    options = {"rowTag": "book", **settings.pop("options", {})}
    return stream("xml", path, options=options, **settings)


def test_xml_is_typed_without_loss(spark, write):
    config = xml(write("a.xml", BOOKS))
    actual = types(spark, config)
    assert {name: actual[name] for name in ("_id", "pages", "price", "zip")} == {
        "_id": "string",
        "pages": "long",
        "price": "decimal(38,2)",
        "zip": "string",
    }
    first, second = rows(spark, config)
    assert (first["_id"], first["zip"], first["pages"]) == ("007", "00501", 12)
    assert first["price"] == Decimal("1.50")
    assert first["by"] == {"born": "1815", "name": "Ada"}
    assert (first["tag"], second["tag"]) == (["a", "b"], ["c"])
    assert second["by"] == {"born": None, "name": "Zoë"}


def test_xml_with_a_schema(spark, write):
    ddl = "pages INT, by STRUCT<born: SMALLINT>"
    config = xml(write("a.xml", BOOKS), schema=ddl)
    assert rows(spark, config) == [
        {"pages": 12, "by": {"born": 1815}},
        {"pages": 345, "by": {"born": None}},
    ]
    config = xml(write("a.xml", BOOKS), schema="zip INT, price INT")
    assert "a row cannot be read: <" in failure(lambda: rows(spark, config))


def test_xml_fields_are_narrowed(spark, write):
    config = xml(write("a.xml", BOOKS))
    actual = rows(spark, config, deselect=["_id", "zip", "price", "tag", ("by", "born")])
    assert actual == [{"by": {"name": "Ada"}, "pages": 12}, {"by": {"name": "Zoë"}, "pages": 345}]


def test_xml_is_resumed_by_file(spark, write, caplog):
    path = write("in/a.xml", BOOKS)
    config = xml(path.rpartition("/")[0], replication_method="INCREMENTAL")
    actual, slices = read_all(spark, config)
    assert len(actual) == 2
    write("in/b.xml", "<books><book id='1'><pages>7</pages></book></books>")
    actual, slices = read_all(spark, config, state=state_of(slices))
    assert [row["pages"] for row in actual] == [7]
    assert read_all(spark, config, state=state_of(slices)) == ([], [])


@pytest.mark.parametrize("method", ["FULL_TABLE", "INCREMENTAL"])
def test_xml_that_is_not_well_formed(spark, write, method):
    config = xml(
        write("a.xml", BOOKS.replace("</zip><pages>345", "<pages>345")),
        schema="zip STRING, pages INT",
        replication_method=method,
    )
    text = failure(lambda: rows(spark, config))
    assert "a.xml" in text


def test_xml_without_the_element(spark, write):
    config = xml(write("a.xml", BOOKS), options={"rowTag": "film"})
    assert "the files have no element <film>" in failure(lambda: types(spark, config))


# --- fixed width

LAYOUT = (
    FixedColumn("id", 1, 4),
    FixedColumn("name", 5, 6),
    FixedColumn("amount", 11, 7),
)
LINES = "   1Ada    001.50\n   2Zoë     12.25\n  33        -3.00\n"


def fixed(path, columns=LAYOUT, **settings):
    return stream("fixed_width", path, columns=columns, **settings)


EXPECTED = [
    {"id": 1, "name": "Ada", "amount": "001.50"},
    {"id": 2, "name": "Zoë", "amount": "12.25"},
    {"id": 33, "name": None, "amount": "-3.00"},
]


def test_fixed_width_is_cut_and_typed_without_loss(spark, write):
    config = fixed(write("a.txt", LINES))
    assert types(spark, config) == {"id": "long", "name": "string", "amount": "string"}
    assert rows(spark, config) == EXPECTED
    assert rows(spark, config, deselect=["id", "amount"])[1] == {"name": "Zoë"}


def test_fixed_width_with_a_schema(spark, write):
    config = fixed(
        write("a.txt", LINES.replace("001", "  1")), schema="amount DECIMAL(9,2), id INT"
    )
    assert rows(spark, config)[0] == {"amount": Decimal("1.50"), "id": 1}
    config = fixed(write("a.txt", LINES), schema="ids INT")
    assert "'schema' has columns that 'columns' does not have: ids" in failure(
        lambda: types(spark, config)
    )
    config = fixed(write("a.txt", LINES), schema="name INT")
    assert "column 'name' holds a value that type int cannot keep" in failure(
        lambda: rows(spark, config)
    )


KINDS = [
    (LINES, {}),
    (LINES.replace("\n", "\r\n"), {}),
    ("the header\n" + LINES, {"header": "true"}),
    ("# hi\n" + LINES + "\n\n#ho\n", {"comment": "#"}),
    (LINES.encode("latin-1"), {"encoding": "ISO-8859-1"}),
    (gzip.compress(LINES.encode()), {}),
    (LINES.rstrip("\n"), {}),
]


@pytest.mark.parametrize(("kind", "method"), matrix(KINDS, ["INCREMENTAL", "FULL_TABLE"]))
def test_fixed_width_files_of_all_kinds(spark, write, method, kind):
    text, options = kind
    name = "a.txt.gz" if isinstance(text, bytes) and not options else "a.txt"
    config = fixed(
        write(name, text), options=options, replication_method=method, read_unterminated_line=True
    )
    assert rows(spark, config) == EXPECTED


@pytest.mark.parametrize("method", ["FULL_TABLE", "INCREMENTAL"])
def test_fixed_width_keeps_every_character(spark, write, method):
    line = 'a,"b\\c\'d\te"'
    columns = (FixedColumn("t", 1, 20), FixedColumn("first", 1, 1), FixedColumn("later", 3, 4))
    config = fixed(write("a.txt", line + "\n"), columns, replication_method=method)
    assert rows(spark, config) == [{"t": line, "first": "a", "later": '"b\\c'}]


@pytest.mark.parametrize("method", ["FULL_TABLE", "INCREMENTAL"])
def test_fixed_width_lines_that_are_too_short(spark, write, method):
    path = write("a.txt", LINES + "   4Short\n")
    text = failure(lambda: rows(spark, fixed(path, replication_method=method, schema="id INT")))
    assert "a line ends before its last column begins: 4Short" in text
    assert "a.txt" in text
    config = fixed(path, options={"mode": "PERMISSIVE"}, replication_method=method)
    assert rows(spark, config)[3] == {"id": 4, "name": "Short", "amount": None}


def test_fixed_width_is_resumed_by_line(spark, write, tmp_path):
    path = write("a.txt", "head\n" + LINES)
    config = fixed(path, options={"header": "true"}, replication_method="INCREMENTAL")
    actual, slices = read_all(spark, config)
    assert len(actual) == 3
    with (tmp_path / "a.txt").open("a") as file:
        file.write("  44New     9.00\n")
    actual, slices = read_all(spark, config, state=state_of(slices))
    assert actual == [{"id": 44, "name": "New", "amount": "9.00"}]


# --- CSV with line ends inside of values


def test_multi_line_csv_is_resumed_by_file(spark, write, caplog):
    path = write("in/a.csv", 'id,note\n1,"two\nlines"\n2,"one ""quoted"""\n')
    config = stream(
        "csv",
        path.rpartition("/")[0],
        options={"multiLine": "true"},
        replication_method="INCREMENTAL",
    )
    actual, slices = read_all(spark, config)
    assert actual == [{"id": 1, "note": "two\nlines"}, {"id": 2, "note": 'one "quoted"'}]
    write("in/b.csv", 'id,note\n3,"a\n\nb"\n')
    actual, slices = read_all(spark, config, state=state_of(slices))
    assert actual == [{"id": 3, "note": "a\n\nb"}]
    write("in/b.csv", 'id,note\n3,"a\n\nb"\n4,"more"\n')
    with caplog.at_level(logging.WARNING):
        actual, _ = read_all(spark, config, state=state_of(slices))
    assert [row["id"] for row in actual] == [3, 4]
    assert "reading it again as a whole" in caplog.text
    assert len(rows(spark, stream("csv", config.path, options=config.options))) == 4
