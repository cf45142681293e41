"""JSON texts with several values are detected, in any layout and any blocks."""

from __future__ import annotations

import gzip
import json
import lzma

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tap_runs import stream

from shared.errors import SourceError
from tap_spark.sources.files import json_rows
from tap_spark.sources.files.json_files import JsonSource
from tap_spark.sources.files.json_rows import several_values

texts = st.text('ab"\\{}[]\n é', max_size=8)
values = st.recursive(
    texts | st.integers(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner)
)
roots = st.lists(values, max_size=3) | st.dictionaries(texts, values, max_size=3)


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@settings(max_examples=300, deadline=None)
@given(
    documents=st.lists(roots, min_size=1, max_size=3),
    between=st.sampled_from(["", " ", "\n", "\r\n", "\n\n "]),
    indent=st.sampled_from([None, 0, 2]),
    size=st.integers(1, 40),
)
def test_values_are_counted(documents, between, indent, size):
    text = between.join(json.dumps(item, indent=indent) for item in documents) + "\n"
    assert several_values(pieces(text.encode(), size)) == (len(documents) > 1)


@pytest.mark.parametrize("text", [b"", b"\n", b"[]", b'{"a": "}\\" {"}', b'["] [", "\\\\"]'])
def test_one_value_or_none(text):
    assert not several_values([text])
    assert not several_values(pieces(text, 1))


def test_lines_too_long_to_keep_are_skipped_and_others_checked(monkeypatch):
    monkeypatch.setattr(json_rows, "LONGEST_LINE", 10)
    long = b'["' + b'}{ \\" ' * 20 + b'"]'
    assert not several_values(pieces(long, 4))
    assert several_values(pieces(long + b"\n[1]\n[2]\n", 4))


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("xz", lzma.compress)])
def test_a_damaged_file_is_named_where_its_kind_is_looked_for(tmp_path, name, pack):
    path = tmp_path / f"a.json.{name}"
    path.write_bytes(pack(b'{"a":1}\n' * 9)[:-9])
    with pytest.raises(
        SourceError, match=f"the file cannot be read: the {name} data is truncated"
    ) as e:
        _ = JsonSource(stream("json", str(path))).document
    assert (e.value.where.stream, e.value.where.file) == ("s", str(path))
