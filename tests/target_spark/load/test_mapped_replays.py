"""Records that come again after a crash: each output of a stream knows what it has itself."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from shared.engine.engine import Engine
from shared.errors import DestinationError
from shared.formats.file_formats import Encoding
from target_spark.config import target_config
from target_spark.core.load_plans import Batch, InputFile, LoadResult, StreamSchema
from target_spark.load.loader import Loader
from target_spark.load.mapped_loader import MappedLoader

pytestmark = [pytest.mark.spark, pytest.mark.server]

INTEGER = {"type": "integer"}
PROPERTIES = {"id": INTEGER, "parts": {"type": "array", "items": INTEGER}}
SCHEMA = {"type": "object", "properties": PROPERTIES}
MAPS = {"s": {"twice": "id * 2"}, "copy": {"__source__": "s", "__filter__": "id % 2 == 0"}}
PARTS = {"__source__": "s", "__explode__": "parts", "__filter__": "parts % 2 == 0"}
PARTS_TOO = {"s": MAPS["s"], "copy": {**PARTS, "id": "__parent__.id * 10 + parts"}}


class OneFails(Loader):
    """Fails the commits of one output."""

    broken = "copy"

    def commit(self, batch: Batch, results: list[LoadResult]) -> Any:  # type: ignore[override]
        if batch.stream.stream == self.broken:
            raise DestinationError("killed here")
        return super().commit(batch, results)


class MapsOneFails(MappedLoader, OneFails):
    """Maps in front of it."""


def staged(path: Path, first: int, last: int) -> InputFile:
    """Return records of a range, as they are staged."""
    lines = [
        json.dumps({"type": "RECORD", "stream": "s", "record": {"id": number, "parts": [1, 2, 4]}})
        for number in range(first, last)
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return InputFile(str(path), Encoding("singer"), None, path.stat().st_size, ((1, 1),))


@pytest.mark.parametrize("maps", [MAPS, PARTS_TOO])
def test_an_output_that_was_durable_gets_nothing_twice(
    lake_spark: Any, tmp_path: Path, maps: dict[str, Any]
) -> None:
    settings = {"path": str(tmp_path / "out"), "format": "delta", "stream_maps": maps}
    config = target_config(settings)
    stream = StreamSchema("s", SCHEMA, ("id",))

    def ids(name: str) -> list[int]:
        path = tmp_path / "out" / name
        frame = lake_spark.read.format("delta").load(str(path))
        return sorted(row.id for row in frame.collect())

    def run(kind: type[MappedLoader], number: int, *ranges: tuple[int, int]) -> tuple[int, ...]:
        engine = Engine.of(lambda: lake_spark)
        loader = kind(config, engine)
        expected = loader.recall(stream)
        try:
            for serial, (first, last) in enumerate(ranges):
                file = staged(tmp_path / f"{number}-{serial}", first, last)
                replay = serial if serial < len(expected) else None
                token = f"run{number}-{serial:06d}"
                batch = Batch(stream, (file,), token, None, time.time(), replay)
                loader.commit(batch, [loader.convert(batch)])
        finally:
            loader.close()
        return expected

    with pytest.raises(DestinationError):
        run(MapsOneFails, 1, (0, 10))
    assert ids("s") == list(range(10))
    assert run(MappedLoader, 2, (0, 10), (10, 15), (15, 20)) == (10,)
    assert ids("s") == list(range(20))
    parts = [number * 10 + part for number in range(20) for part in (2, 4)]
    assert ids("copy") == (list(range(0, 20, 2)) if maps is MAPS else parts)
