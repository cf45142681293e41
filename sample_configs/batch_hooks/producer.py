"""A tap of your own that sends BATCH messages: `target-spark < messages.jsonl` loads them."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

from tap_spark import get_batches

schema = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "total": {"type": "number", "multipleOf": 0.01},
        "at": {"type": "string", "format": "date-time"},
    },
}
batch_config = {
    "encoding": {"format": "parquet", "compression": "zstd"},
    "storage": {"root": "batches", "prefix": "shop-"},
    "batch_size": 1000,
}


def orders() -> Iterator[dict[str, object]]:
    for number in range(2500):
        yield {
            "id": number,
            "total": Decimal(number) / 100,
            "at": datetime(2026, 1, 1, tzinfo=timezone.utc),
        }


with Path("messages.jsonl").open("w") as out:  # a tap writes to its standard output

    def say(kind: str, **message: object) -> None:
        print(json.dumps({"type": kind, **message}), file=out, flush=True)

    say("SCHEMA", stream="orders", schema=schema, key_properties=["id"])
    for encoding, manifest in get_batches(
        orders(), schema, batch_config, tap_name="tap-shop", stream_name="orders"
    ):
        say("BATCH", stream="orders", encoding=asdict(encoding), manifest=manifest)
    say("STATE", value={"bookmarks": {"orders": {}}})
