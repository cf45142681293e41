"""Records of CSV, however the text is cut into blocks; and the encoding of files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tap_spark.sources.files.file_positions import NotTextError, file_kind
from tap_spark.sources.files.line_reader import Quotes
from tap_spark.sources.source_declaration import encoding_name

LINES = Quotes(b",", b'"', b'"')
SPANS = Quotes(b",", b'"', b'"', spans_lines=True)


def records(quotes: Quotes, data: bytes, cuts: tuple[int, ...] = ()) -> list[bytes]:
    edges = [0, *sorted(cuts), len(data)]
    blocks = [(a, data[a:b]) for a, b in pairwise(edges)]
    return [text for array in quotes.records(blocks, "f") for text in array.to_pylist()]


def expected(data: bytes) -> list[bytes] | None:
    """Go through the text byte by byte; None if a quoted value does not end."""
    actual, at, begin = [], 0, 0
    while at < len(data):
        if data[at : at + 1] == b'"':
            at += 1
            while True:
                at = data.find(b'"', at) + 1
                if not at:
                    return None
                if data[at : at + 1] != b'"':
                    break
                at += 1
        while at < len(data) and data[at : at + 1] not in (b",", b"\r", b"\n"):
            at += 1
        if data[at : at + 1] == b",":
            at += 1
            if at < len(data):
                continue
        actual.append(data[begin:at])
        at += 2 if data[at : at + 2] == b"\r\n" else 1
        begin = at
    return actual


@example('"\n"\ra', set())
@given(st.text('a",\n\r', max_size=20), st.sets(st.integers(0, 20), max_size=3))
def test_records_do_not_depend_on_where_blocks_end(text, cuts):
    data = text.encode()
    wanted = expected(data)
    edges = tuple(cut for cut in cuts if cut < len(data))
    if wanted is None:
        with pytest.raises(RuntimeError, match="a quoted value has no end"):
            records(SPANS, data, edges)
    else:
        assert records(SPANS, data, edges) == wanted


@given(st.lists(st.sampled_from(['a,"b"', '"a""b",c', 'x"y,z', '"a"b,c', "", ",", '"",""'])))
def test_lines_without_line_ends_in_values_are_the_same(lines):
    for end in ("\n", "\r\n"):
        data = "".join(line + end for line in lines).encode()
        assert records(LINES, data) == [line.encode() for line in lines]


@pytest.mark.parametrize("line", ['"a', 'b,"a', 'b,"a""', '"a\rb"', '"a,b'])
def test_a_value_that_its_line_does_not_end_is_named_by_its_byte(line):
    data = f'id,x\r\n1,"2"\r\n{line}\r\n3,4\r\n'.encode()
    with pytest.raises(RuntimeError) as caught:
        records(LINES, data)
    parts = json.loads(re.search(r"\{.*\}", str(caught.value))[0])
    assert "at byte 13" in parts["problem"]
    assert "multiLine" in parts["hint"]
    assert parts["value"].startswith(line[:2])


def test_escapes_and_long_separators():
    quotes = Quotes(b"||", b"'", b"\\", spans_lines=True)
    data = b"'a\\'\n'||b|c||'d'\n'e||\n'||f\n"
    assert records(quotes, data) == [b"'a\\'\n'||b|c||'d'", b"'e||\n'||f"]


COMMENTED = ['#"', '#a,"', "#", 'a,"b\n#"', '1,"2"', "a,#", "3,4"]


@given(
    st.lists(st.tuples(st.sampled_from(COMMENTED), st.sampled_from(["\n", "\r\n", "\r"]))),
    st.sets(st.integers(0, 60), max_size=4),
)
def test_quotes_of_comments_mean_nothing(lines, cuts):
    """And a comment ends with its line, wherever blocks end."""
    data = "".join(line + end for line, end in lines).encode()
    quotes = replace(SPANS, comment=b"#")
    edges = tuple(cut for cut in cuts if cut < len(data))
    assert records(quotes, data, edges) == [line.encode() for line, _ in lines]


def test_comments_of_lines_may_have_an_open_quote():
    data = b'id,n\n# a,"5 inch\r\n1,"2"\n'
    quotes = replace(LINES, comment=b"#")
    assert records(quotes, data) == [b"id,n", b'# a,"5 inch', b'1,"2"']


@pytest.mark.parametrize(
    ("name", "python"),
    [
        *(
            ("windows-1252", "cp1252"),
            ("GBK", "gbk"),
            ("Shift_JIS", "shift_jis"),
            ("MS932", "cp932"),
        ),
        *(("UTF-16LE", "utf-16-le"), ("ISO-8859-1", "iso8859-1"), ("x-MacRoman", "mac-roman")),
        *(("nonsense", None), ("hex", None), ("rot13", None), ("", None)),
    ],
)
def test_encodings_have_the_names_of_java_and_python(name, python):
    assert encoding_name(name) == python


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"PK\x03\x04abc", "zip"),
        (b"PAR1abc", "Parquet"),
        ("id,name\n1,2\n".encode("utf-16-le"), "UTF-16LE"),
        ("id,name\n1,2\n".encode("utf-16-be"), "UTF-16BE"),
    ],
)
def test_what_is_not_text_is_named(head, what):
    with pytest.raises(NotTextError) as caught:
        file_kind(head, "")
    assert what in f"{caught.value} {caught.value.hint}"


def test_a_byte_order_mark_and_compression_are_found():
    assert file_kind("é".encode("utf-16"), "").encoding == "utf-16"
    assert file_kind(b"\xff\xfe\x00\x00", "").encoding == "utf-32"
    assert file_kind(b"\x1f\x8b\x08", "").is_compressed
    assert file_kind(b"a,b\n\x00\n", "") == file_kind(b"", "")
