"""Records that come again on a machine whose quickest hash is another one."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import pytest
from deltalake import DeltaTable
from engines import threads
from hypothesis import given
from hypothesis import strategies as st

from shared.formats.file_formats import Encoding
from target_spark.config import target_config
from target_spark.core.load_plans import STAGED, Batch, InputFile, StreamSchema
from target_spark.load.guards import replays as guard
from target_spark.load.loader import Loader
from target_spark.replays import HASHES, segments_of, whole_segment

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
STREAM = StreamSchema("s", SCHEMA, ())


def staged(path: Path, first: int) -> InputFile:
    lines = [
        f'{{"type":"RECORD","stream":"s","record":{{"id":{n}}}}}\n' for n in range(first, first + 5)
    ]
    path.write_text("".join(lines))
    return InputFile(str(path), Encoding(STAGED), 5, path.stat().st_size, ((1, 1),))


@pytest.mark.parametrize(("before", "now"), list(product(HASHES, HASHES)))
def test_they_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, now: str
) -> None:
    config = target_config({"path": str(tmp_path / "out"), "format": "delta"})

    def run(name: str, number: int, *firsts: int) -> list[int]:
        """Load files of five records, and end without a STATE; return how many are replays."""
        monkeypatch.setattr(guard, "QUICKEST", name)
        loader, replayed = Loader(config, threads()), list[int]()
        expected = loader.recall(STREAM)
        try:
            for serial, first in enumerate(firsts):
                file = staged(tmp_path / f"{number}-{serial}", first)
                replay = serial if serial < len(expected) else None
                token = f"run{number}-{serial:06d}"
                batch = Batch(STREAM, (file,), token, None, time.time(), replay)
                result = loader.convert(batch)
                loader.commit(batch, [result])
                replayed.append(result.replayed)
        finally:
            loader.close()
        return replayed

    assert run(before, 1, 0, 5) == [0, 0]
    # The second one leaves a note with digests of both runs.
    assert run(now, 2, 0, 5, 10) == [5, 5, 0]
    assert run(before, 3, 0, 5, 10, 20) == [5, 5, 5, 0]
    rows = DeltaTable(str(tmp_path / "out" / "s")).to_pyarrow_table(columns=["id"])
    assert sorted(rows.column("id").to_pylist()) == [*range(15), *range(20, 25)]


@given(st.binary(max_size=3000), st.binary(max_size=3000))
def test_digests_tell_their_hash(
    tmp_path_factory: pytest.TempPathFactory, one: bytes, other: bytes
) -> None:
    folder = tmp_path_factory.mktemp("files")
    for encoding, name in product((Encoding(STAGED), Encoding("jsonl")), HASHES):
        files = [InputFile(str(folder / text), encoding) for text in ("one", "other")]
        for file, data in zip(files, (one, other), strict=True):
            Path(file.url).write_bytes(data + b"\n")
        (own,), (its,) = (list(segments_of(file, name)) for file in files)
        assert own == whole_segment(files[0], own.digest)
        assert (own.digest == its.digest) is (one == other)
        for another in set(HASHES) - {name}:
            assert own.digest != next(segments_of(files[0], another)).digest
