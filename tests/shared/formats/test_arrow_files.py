"""Arrow IPC as other programs write it, and as nobody should: streams, dictionaries, damage."""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from case_matrix import matrix
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from shared.formats.arrow_encoding import group_sizes, read_groups
from shared.formats.file_formats import FORMATS
from shared.formats.line_encodings import ContentError
from shared.formats.typed_rows import RowReader, without_bad_text
from shared.storage import limits
from shared.storage.access import StorageOptions
from shared.testing import TABLE

WAYS = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}
SCHEMA = {
    "properties": {
        "id": {"type": ["integer", "null"]},
        "text": {"type": ["string", "null"]},
        "real": {"type": ["number", "null"]},
        "list": {"type": ["array", "null"], "items": {"type": ["integer", "null"]}},
    }
}
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.none() | st.integers(-(2**63), 2**63 - 1),
            "text": st.none() | st.text(max_size=5),
            "real": st.none() | st.floats(allow_nan=False),
            "list": st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3),
        }
    ),
    max_size=20,
)


def created(
    table: pa.Table, variant: str = "file", rows: int = 2, codec: str | None = None
) -> bytes:
    sink = io.BytesIO()
    if variant == "parquet":
        parquet.write_table(table, sink, write_page_index=True)
        return sink.getvalue()
    with WAYS[variant](
        sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)
    ) as out:
        out.write_table(table, max_chunksize=rows)
    return sink.getvalue()


def read(path: Path, data: bytes, form: str = "arrow") -> pa.Table:
    path.write_bytes(data)
    return pa.concat_tables(FORMATS[form].read(str(path)))


@given(rows=ROWS, cut=st.integers(0, 20), codec=st.sampled_from(FORMATS["arrow"].compressions))
def test_the_same_rows_as_parquet(
    tmp_path_factory: Any, rows: list[dict[str, Any]], cut: int, codec: str
) -> None:
    folder = tmp_path_factory.getbasetemp()
    reader = RowReader(SCHEMA, strict=True)
    table = pa.Table.from_pylist(rows, reader.arrow_schema)
    actual = []
    for form, packed in (("arrow", codec), ("parquet", "zstd")):
        url = str(folder / f"rows.{form}")
        parts = iter([table.slice(0, cut), table.slice(cut)])
        FORMATS[form].write(url, table.schema, parts, packed)
        actual.append([reader.read(part).table for part in FORMATS[form].read(url)])
    arrow, parquet = (pa.concat_tables(tables).to_pylist() for tables in actual)
    assert arrow == parquet == rows


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("variant", WAYS)
def test_files_and_streams_of_others(tmp_path: Path, variant: str, codec: str | None) -> None:
    table = TABLE.append_column("of few", pa.array(["a", "b", "a", None]).dictionary_encode())
    actual = read(tmp_path / "x", created(table, variant, 3, codec))
    assert repr(actual.to_pylist()) == repr(table.to_pylist())
    path = str(tmp_path / "x")
    assert [rows for _, rows in group_sizes(path)] == [3, 1]
    second = pa.concat_tables(read_groups(path, range(1, 2)))
    assert repr(second.to_pylist()) == repr(table.slice(3).to_pylist())


def test_a_dictionary_that_a_stream_replaces(tmp_path: Path) -> None:
    parts = [pa.table({"a": pa.array(words).dictionary_encode()}) for words in ("ab", "ba", "xy")]
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, parts[0].schema) as out:
        for part in parts:
            out.write_table(part)
    actual = read(tmp_path / "x", sink.getvalue())
    assert actual["a"].to_pylist() == list("abbaxy")
    [*last] = read_groups(str(tmp_path / "x"), range(2, 3))
    assert [value for table in last for value in table["a"].to_pylist()] == ["x", "y"]


def test_large_record_batches_are_cut(tmp_path: Path) -> None:
    table = pa.table({"a": range(40_000)})
    (tmp_path / "x").write_bytes(created(table, rows=40_000))
    sizes = [part.num_rows for part in FORMATS["arrow"].read(str(tmp_path / "x"))]
    assert sizes == [16_384, 16_384, 7_232, 0]


def test_small_tables_are_joined(tmp_path: Path) -> None:
    tables = [pa.table({"a": [number]}) for number in range(500)]
    FORMATS["arrow"].write(str(tmp_path / "x"), tables[0].schema, iter(tables), "none")
    assert [rows for _, rows in group_sizes(str(tmp_path / "x"))] == [500]


def test_a_stream_that_ends_between_two_batches(tmp_path: Path) -> None:
    """Only the mark of the end says that there are no more rows."""
    data = created(pa.table({"a": range(6)}), "stream")
    path = tmp_path / "x"
    path.write_bytes(data)
    first, *_ = group_sizes(str(path))
    for size in (len(data) - 8, len(data) - 8 - first[0]):
        with pytest.raises(pa.ArrowInvalid, match="truncated"):
            read(path, data[:size])
        assert group_sizes(str(path)) == []


@pytest.mark.parametrize("codec", ["uncompressed", "lz4", "zstd"])
@pytest.mark.parametrize("level", [polars.CompatLevel.oldest, polars.CompatLevel.newest])
def test_files_of_polars(tmp_path: Path, level: Any, codec: Any) -> None:
    """They have their schema in the footer only."""
    few = polars.Series("few", ["a", None, "a"], polars.Categorical)
    frame = polars.DataFrame(
        {"id": [1, 2, None], "text": ["x", None, "y"], "list": [[1], [], None]}
    )
    for rows in (frame.with_columns(few), frame.clear()):
        rows.write_ipc(tmp_path / "p", compression=codec, compat_level=level())
        assert read(tmp_path / "x", (tmp_path / "p").read_bytes()).to_pylist() == rows.to_dicts()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(("variant", "rows"), matrix([*WAYS, "parquet"], [0, 3]))
def test_joined_files_are_refused(
    tmp_path: Path, variant: str, rows: int, pack: Callable[[bytes], bytes]
) -> None:
    """The second one would be taken for the whole, or be left out."""
    table = pa.table({"a": range(3), "few": pa.array(["x"] * 3).dictionary_encode()})
    parts = [pack(created(part, variant)) for part in (table, table.slice(0, rows))]
    for order in (parts, parts[::-1]):
        with pytest.raises(ContentError, match="it is several files joined into one"):
            read(tmp_path / "x", b"".join(order), "parquet" if variant == "parquet" else "arrow")


@pytest.mark.parametrize("variant", WAYS)
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_batches_that_no_data_packs_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, variant: str
) -> None:
    plain = pa.table({"a": ["x" * 1000] * 20_000})
    coded = pa.table({"a": pa.array(["x" * 10**7]).dictionary_encode()})
    monkeypatch.setattr(limits, "MAX_RATIO", 100)
    for table in (plain, coded):
        data = created(table, variant, 20_000, codec)
        assert read(tmp_path / "x", data).num_rows == table.num_rows
        with monkeypatch.context() as patch:
            patch.setattr(limits, "FREE_BYTES", 1 << 20)
            with pytest.raises(pa.ArrowInvalid, match="more than 100 times"):
                read(tmp_path / "x", data)


def test_rows_that_take_no_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = created(pa.table({"a": pa.nulls(2_000_000)}), rows=2_000_000)
    monkeypatch.setattr(limits, "FREE_BYTES", 1 << 20)
    with pytest.raises(pa.ArrowInvalid, match="times its size"):
        read(tmp_path / "x", data)


@pytest.mark.parametrize("variant", WAYS)
def test_text_that_is_not_utf8_is_one_of_its_row(tmp_path: Path, variant: str) -> None:
    bad = pa.array([b"a", b"\xff"]).view(pa.string())
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1]), bad, safe=False)
    table = read(tmp_path / "x", created(pa.table({"t": bad, "d": coded}), variant))
    kept, refused = without_bad_text(table, 0)
    assert kept.to_pylist() == [{"t": "a", "d": "a"}]
    assert [row.number for row in refused] == [2]


def damaged(seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    table = TABLE.append_column("of few", pa.array(["a", "b", "a", None]).dictionary_encode())
    whole = [
        created(table, variant, 2, codec) for variant in WAYS for codec in (None, "lz4", "zstd")
    ]
    for _ in range(150):
        data = bytearray(chance.choice(whole))
        for _ in range(chance.choice((1, 1, 2, 5))):
            data[chance.randrange(len(data))] = chance.choice((0, 127, 255, chance.randrange(256)))
        yield bytes(data)


@pytest.mark.once
def test_damage_is_an_error_that_readers_of_files_expect(tmp_path: Path, seed: int) -> None:
    errors = 0
    for data in damaged(seed):
        try:
            read(tmp_path / "x", data)
        except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
            errors += 1
        assert isinstance(group_sizes(str(tmp_path / "x")), list)
    assert errors > 0


def test_remote_files() -> None:
    url = "memory://arrow/x.arrow"
    table = pa.table({"a": range(10)})
    FORMATS["arrow"].write(url, table.schema, [table], "zstd", StorageOptions())
    assert pa.concat_tables(FORMATS["arrow"].read(url, StorageOptions())) == table
    assert group_sizes(url) == [(group_sizes(url)[0][0], 10)]
