"""gzip by isal: what others write is read, what it writes others read, damage is an OSError.

So is damage of xz.
"""

from __future__ import annotations

import gzip
import lzma
import random
from pathlib import Path

import pyarrow as pa
import pytest

from shared.storage.files import open_input, open_output

TEXT = b'{"a":1}\n' * 50_000


def read(path: Path, content: bytes) -> bytes:
    path.write_bytes(content)
    with open_input(str(path)) as source:
        return b"".join(iter(lambda: source.read(10_000), b""))


def test_python_reads_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    for _ in range(2):
        with open_output(str(path), "gzip") as sink:
            sink.write(pa.py_buffer(TEXT))
            sink.write(b"")
        first = path.read_bytes()
    assert gzip.decompress(first) == TEXT
    assert first[4:8] == bytes(4), "the same rows make the same file"


@pytest.mark.parametrize("level", [1, 9])
def test_members_of_others_are_read_as_one_file(tmp_path: Path, level: int) -> None:
    members = gzip.compress(TEXT, level) + gzip.compress(b"") + gzip.compress(b"more", level)
    assert read(tmp_path / "x.gz", members) == TEXT + b"more"


@pytest.mark.parametrize("cut", [1, 9, 30])
def test_a_cut_file_is_an_error(tmp_path: Path, cut: int) -> None:
    with pytest.raises(OSError, match="truncated"):
        read(tmp_path / "x.gz", gzip.compress(TEXT)[:-cut])


@pytest.mark.parametrize(("at", "reason"), [(20, "damaged"), (-6, "CRC")])
def test_damage_is_an_error(tmp_path: Path, at: int, reason: str) -> None:
    content = bytearray(gzip.compress(TEXT))
    content[at] ^= 255
    with pytest.raises(OSError, match=reason):
        read(tmp_path / "x.gz", bytes(content))


@pytest.mark.parametrize("padding", [0, 4, 512, 200_000])
def test_streams_of_xz_are_read_as_one_file(tmp_path: Path, padding: int) -> None:
    noise = random.Random(0).randbytes(200_000)
    zeros = bytes(padding)
    streams = zeros.join(map(lzma.compress, (TEXT, b"", noise, b"more")))
    assert read(tmp_path / "x.xz", streams + zeros) == TEXT + noise + b"more"


@pytest.mark.parametrize(
    ("end", "reason"),
    [(lzma.compress(TEXT)[:-1], "truncated"), (b"no stream" * 9, "damaged"), (b"x", "truncated")],
)
def test_what_follows_a_stream_of_xz_is_a_stream_or_an_error(
    tmp_path: Path, end: bytes, reason: str
) -> None:
    for start in (b"", bytes(8)):
        with pytest.raises(OSError, match=f"xz data is {reason}"):
            read(tmp_path / "x.xz", lzma.compress(b"a") + start + end)
