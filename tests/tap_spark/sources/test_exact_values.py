"""Text of files in the types of `schema`: of the same value, or an error; alike for each method."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from itertools import zip_longest

import pytest
from case_matrix import matrix
from pyspark.sql import functions as F  # noqa: N812
from tap_runs import failure, rows, stream

from tap_spark.sources.files.text_types import has_same_value

pytestmark = pytest.mark.spark
METHODS = ["FULL_TABLE", "INCREMENTAL"]

KEPT = {
    "DECIMAL(10,2)": [
        "1.5",
        "1.50",
        "1.500",
        "-0.25",
        "+7",
        "007",
        "1e2",
        "12.3e-1",
        "100e-2",
        "0e-9",
    ],
    "DECIMAL(38,0)": ["9" * 38, "1e37"],
    "INT": ["1", "-20", "007", "+1", "2147483647"],
    "BIGINT": ["9223372036854775807"],
    "DOUBLE": [
        "1",
        "1.5",
        "1e5",
        "0.1",
        "-0.0",
        "1.50",
        "0.30000000000000004",
        "1e300",
        "NaN",
        "Infinity",
        "-Infinity",
        "Inf",
        "9007199254740992",
        "1E-7",
        ".5",
        "5.",
    ],
    "FLOAT": ["0.1", "16777216", "1.5e10", "NaN"],
    "DATE": ["2024-02-29", "0001-01-01", "9999-12-31", "2024-01-01 00:00:00", "2024-1-5"],
    "TIMESTAMP": [
        "2024-01-01",
        "2024-01-01 10:00:00",
        "2024-01-01T10:00:00.123456Z",
        "2024-01-01T10:00:00.5000000+02:00",
        "2024-01-01 10:00:00.123456000",
        "2024-01-01 10:00",
        "2024-01-01 10:00:00 UTC",
    ],
    "TIMESTAMP_NTZ": ["2024-01-01 10:00:00", "2024-01-01T10:00:00.5"],
    "BOOLEAN": ["true", "False", "TRUE"],
}
REJECTED = {
    "DECIMAL(10,2)": [
        "1,5",
        "1.555",
        "1e-5",
        "1_0",
        "NaN",
        "",
        " 1",
        "1 ",
        "12345678901",
        "0x1",
        "\u0967",
        "\uff11",
        "1.5.1",
        "--1",
    ],
    "INT": ["1.5", "1.0", "2147483648", "1e2", " 1", "1_000", "\uff11", "abc", "1L", "0x1F"],
    "TINYINT": ["128", "-129"],
    "DOUBLE": [
        "0.1234567890123456789",
        "9007199254740993",
        "12345678901234567.89",
        "1e400",
        "1e-400",
        "1,5",
        "1d",
        "1.5f",
        "0x1p3",
        "nanx",
        " 1",
        "4.94065645841e-324",
        "\uff11.5",
    ],
    "FLOAT": ["0.123456789", "16777217", "1e39"],
    "DATE": [
        "2024-02-30",
        "2024-01-01 10:00:00",
        "2024-01-01T23:59",
        "24-01-01",
        "2024-01",
        "2024",
        "01/02/2024",
        "2024-01-01Z",
        " 2024-01-01",
        "2024-01-01x",
    ],
    "TIMESTAMP": [
        "2024-02-30 00:00:00",
        "2024-01-01 24:00:00",
        "2024-01-01 10:00:60",
        "2024-01-01T10:00:00.123456789Z",
        "10:00:00",
        "2024",
        "2024-01-01 10:00:00.1234567",
        "24-01-01 10:00:00",
        "2024-01-01 10:00:00 Nowhere",
    ],
    "TIMESTAMP_NTZ": [
        "2024-01-01T10:00:00Z",
        "2024-01-01 10:00:00+02:00",
        "2024-01-01 10:00:00.1234567",
    ],
    "BOOLEAN": ["1", "yes", "t", " true", "0"],
}


def test_values_that_a_type_holds_are_kept_and_others_rejected(spark):
    """One query has a column of texts for each type."""
    ddls = list(KEPT | REJECTED)
    texts = [[*KEPT.get(ddl, ()), *REJECTED.get(ddl, ())] for ddl in ddls]
    names = [f"t{n}" for n in range(len(ddls))]
    frame = spark.createDataFrame(
        list(zip_longest(*texts)), ", ".join(f"{name} string" for name in names)
    )
    columns = ", ".join(f"{name} {ddl}" for name, ddl in zip(names, ddls, strict=True))
    is_kept = []
    for field in spark.createDataFrame([], columns).schema:
        text = F.col(field.name)
        value = text.try_cast(field.dataType)
        good = value.isNotNull() & has_same_value(text, value, field.dataType)
        is_kept.append(F.coalesce(good, F.lit(False)))
    is_same = list(zip(*frame.select(*is_kept).collect(), strict=True))
    actual = {
        ddl: [text for text, good in zip_longest(texts[n], is_same[n]) if good]
        for n, ddl in enumerate(ddls)
    }
    assert actual == {ddl: KEPT.get(ddl, []) for ddl in ddls}


DDL = "a DECIMAL(10,2), b DATE, c TIMESTAMP_NTZ, d DOUBLE, e INT"
HEAD, GOOD = "a,b,c,d,e\n", "1.5,2024-02-29,2024-01-01 10:00:00,1e5,007\n,,,NaN,\n"


@pytest.mark.parametrize("method", METHODS)
def test_a_file_with_a_schema_keeps_values(spark, write, method):
    path = write("v.csv", HEAD + GOOD)
    config = stream("csv", path, schema=DDL, replication_method=method)
    first, second = rows(spark, config)
    expected = [Decimal("1.50"), date(2024, 2, 29), datetime(2024, 1, 1, 10), 1e5, 7]
    assert list(first.values()) == expected
    assert math.isnan(second["d"])


@pytest.mark.parametrize(
    ("bad", "method"),
    matrix(
        ['"1,5",,,,', ",2024-01-01 10:00:00,,,", ",,,0.1234567890123456789,", ",,,,1.0"], METHODS
    ),
)
def test_a_file_with_a_schema_names_what_does_not_fit(spark, write, method, bad):
    path = write("v.csv", HEAD + GOOD + bad + "\n")
    text = failure(lambda: rows(spark, stream("csv", path, schema=DDL, replication_method=method)))
    assert path in text
    assert "cannot keep" in text
    assert bad.strip('",') in text


BAD_LINES = ["1,5   2024-01-01", "1.555 2024-01-01", "1     2024-01-01 10:00:00"]
BAD_TAGS = ["<a>1.555</a>", "<a>1,5</a>", "<b>2024-01-01 10:00:00</b>"]


@pytest.mark.parametrize(
    ("bad", "method"), matrix(list(zip(BAD_LINES, BAD_TAGS, strict=True)), METHODS)
)
def test_xml_and_fixed_width_follow_the_same_rule(spark, write, method, bad):
    line, tag = bad
    ddl = "a DECIMAL(10,2), b DATE"
    columns = [{"name": "a", "length": 6}, {"name": "b", "length": 19}]
    from tap_spark.sources.formats import BUILT_IN

    own = BUILT_IN["fixed_width"].typed({"columns": columns})
    fixed = {"schema": ddl, "replication_method": method, **own}
    assert rows(spark, stream("fixed_width", write("g.txt", "1.5   2024-01-01\n"), **fixed))
    config = stream("fixed_width", write("f.txt", line + "\n"), **fixed)
    assert "cannot keep" in failure(lambda: rows(spark, config))
    xml = {"schema": ddl, "replication_method": method, "options": {"rowTag": "r"}}
    bad_tag = stream("xml", write("x.xml", f"<t><r>{tag}</r></t>"), **xml)
    assert "cannot keep" in failure(lambda: rows(spark, bad_tag))
    good = stream("xml", write("y.xml", "<t><r><a>1.5</a></r></t>"), **xml)
    assert rows(spark, good) == [{"a": Decimal("1.50"), "b": None}]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("ARRAY<INT>", "column 'v' of 'schema' has the type array<int>, which csv does not have"),
        ("CHAR(3)", "has CHAR or VARCHAR (use STRING for them)"),
        ("NONSENSE", "NONSENSE"),
    ],
)
def test_types_of_schema_that_text_does_not_have(spark, write, kind, words):
    path = write("a.csv", "id,v\n1,[1]\n")
    text = failure(lambda: rows(spark, stream("csv", path, schema=f"id INT, v {kind}")))
    assert words in text
    assert "calling o" not in text
