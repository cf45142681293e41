"""Records that come again after a crash: each output of a stream knows what it has itself."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from mapped_bench import Starter

from shared.encodings import Encoding
from shared.errors import DestinationError
from target_spark.config import target_config
from target_spark.loader import Loader
from target_spark.mapped_loader import MappedLoader
from target_spark.plans import Batch, InputFile, LoadResult, StreamSchema

pytestmark = [pytest.mark.spark, pytest.mark.server]

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
MAPS = {"s": {"twice": "id * 2"}, "copy": {"__source__": "s", "__filter__": "id % 2 == 0"}}


class OneFails(Loader):
    """Fails the commits of one output."""

    broken = "copy"

    def commit(self, batch: Batch, results: list[LoadResult]) -> None:  # type: ignore[override]
        if batch.stream.stream == self.broken:
            raise DestinationError("killed here")
        super().commit(batch, results)


def staged(path: Path, first: int, last: int, marks: int) -> InputFile:
    """Records of a range, as they are staged; a STATE came after every `marks` of them."""
    data, cuts = b"", []
    for number in range(first, last):
        line = {"type": "RECORD", "stream": "s", "record": {"id": number}}
        data += json.dumps(line).encode() + b"\n"
        if (number + 1) % marks == 0:
            cuts.append(len(data))
    path.write_bytes(data)
    return InputFile(str(path), Encoding("singer"), None, len(data), ((1, 1),), tuple(cuts))


def test_an_output_that_was_durable_gets_nothing_twice(lake_spark: Any, tmp_path: Path) -> None:
    settings = {"path": str(tmp_path / "out"), "format": "delta", "stream_maps": MAPS}
    config = target_config(settings)
    stream = StreamSchema("s", SCHEMA, ("id",))

    def ids(name: str) -> list[int]:
        path = tmp_path / "out" / name
        frame = lake_spark.read.format("delta").load(str(path))
        return sorted(row.id for row in frame.collect())

    def run(kind: type[Loader], number: int, *ranges: tuple[int, int]) -> None:
        starter = Starter(lake_spark)
        loader = MappedLoader(config, kind(config, starter.get), starter)
        for serial, (first, last) in enumerate(ranges):
            file = staged(tmp_path / f"{number}-{serial}", first, last, 5)
            token = f"run{number}-{serial:06d}"
            batch = Batch(stream, (file,), token, None, time.time(), serial)
            loader.commit(batch, [loader.convert(batch)])

    with pytest.raises(DestinationError):
        run(OneFails, 1, (0, 10))
    assert ids("s") == list(range(10))
    run(Loader, 2, (0, 15), (15, 20))
    assert ids("s") == list(range(20))
    assert ids("copy") == list(range(0, 20, 2))
