"""Ten typical maps with flattening, compared with no maps, and with the SDK's mapper.

Run as `python -m benchmarks.maps_path [--rows N] [--sdk-rows N] [--runs N] [--cases WORD ...]`.
Every path through the programs runs with and without maps, in turn; starts of Spark are included.
The SDK's mapper runs alone on records in memory, without reading or writing any, and for fewer
rows; its time is given per million.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from singer_sdk.mapper import PluginMapper

from benchmarks.processes import Command, Measured, interleaved, module, run_piped
from benchmarks.results import publish

FILES = 4
EPOCH = datetime(2024, 1, 1, tzinfo=timezone.utc)
STATUSES = ("new", "paid", "sent", "deleted")
MAPS: dict[str, Any] = {
    "orders": {
        "__filter__": "status != 'deleted'",
        "email_domain": "email.split('@')[-1]",
        "email_hash": "md5(config['seed'] + email)",
        "email": None,
        "full_name": "first_name + ' ' + last_name",
        "last_name": "last_name.upper()",
        "total": "amount * quantity",
        "is_large": "amount * quantity > 100",
        "day": "created_at[:10]",
        "label": "f'{status}-{id}'",
        "tier": "'gold' if quantity >= 5 else 'basic'",
    }
}
SETTINGS: dict[str, Any] = {
    "stream_maps": MAPS,
    "stream_map_config": {"seed": "a salt"},
    "flattening_enabled": True,
    "flattening_max_depth": 3,
}
ENCODINGS = {
    "jsonl": {"format": "jsonl", "compression": "none"},
    "parquet": {"format": "parquet", "compression": "snappy"},
}


def record(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "email": f"user{number}@example{number % 97}.org",
        "first_name": f"First{number % 1009}",
        "last_name": f"Last{number % 2003}",
        "status": STATUSES[number * 7 % 4],
        "amount": number % 10_007 / 16,
        "quantity": number % 11,
        "created_at": (EPOCH + timedelta(seconds=number)).isoformat(),
        "tags": [f"t{number % 5}", f"t{number % 7}"],
        "address": {
            "street": f"{number % 300} Long Road",
            "city": f"City {number % 500}",
            "place": {"latitude": number % 180 / 2, "longitude": number % 360 / 2},
        },
    }


def make_rows(folder: Path, rows: int) -> None:
    folder.mkdir()
    step = -(-rows // FILES)
    for first in range(0, rows, step):
        table = pa.Table.from_pylist([record(n) for n in range(first, min(first + step, rows))])
        at = table.schema.get_field_index("created_at")
        times = table.column(at).cast(pa.timestamp("us", "UTC"))
        pq.write_table(
            table.set_column(at, "created_at", times), folder / f"part-{first:09}.parquet"
        )


def tap_config(folder: Path, *, maps: bool, encoding: str | None) -> Path:
    config: dict[str, Any] = {
        "streams": [{"name": "orders", "format": "parquet", "path": str(folder / "rows")}],
        **(SETTINGS if maps else {}),
    }
    if encoding:
        config["batch_config"] = {
            "encoding": ENCODINGS[encoding],
            "storage": {"root": str(folder / "batches")},
        }
    path = folder / "tap.json"
    path.write_text(json.dumps(config))
    return path


def target_config(folder: Path, *, maps: bool) -> Path:
    path = folder / "target.json"
    config = {"path": str(folder / "out"), "batch_config": {"cleanup": True}}
    path.write_text(json.dumps({**config, **(SETTINGS if maps else {})}))
    return path


def measure(folder: Path, *, encoding: str | None, maps: str, pipe: bool) -> Measured:
    """Run once; `maps` is the program that maps: `tap`, `target`, or none."""
    for name in ("out", "batches"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "batches").mkdir()
    tap = tap_config(folder, maps=maps == "tap", encoding=encoding)
    commands: list[Command] = [module("tap_spark.cli", "--config", str(tap))]
    if pipe:
        target = target_config(folder, maps=maps == "target")
        commands.append(module("target_spark.cli", "--config", str(target)))
    return run_piped(commands, folder)


def ways(folder: Path) -> dict[str, Callable[[], Measured]]:
    variants: dict[str, Callable[[], Measured]] = {}
    for encoding in (None, *ENCODINGS):
        name = encoding or "record"
        for maps in ("", "tap"):
            variants[f"tap alone, {name}{', maps' if maps else ''}"] = partial(
                measure, folder, encoding=encoding, maps=maps, pipe=False
            )
        for maps in ("", "tap", "target"):
            variants[f"pipe, {name}{f', maps in the {maps}' if maps else ''}"] = partial(
                measure, folder, encoding=encoding, maps=maps, pipe=True
            )
    return variants


def sdk_seconds(rows: int) -> float:
    """Measure seconds per million records of the SDK's mapper: filter, maps and flattening."""
    text, number = {"type": ["string", "null"]}, {"type": ["number", "null"]}
    place = {"type": "object", "properties": {"latitude": number, "longitude": number}}
    address = {"street": text, "city": text, "place": place}
    properties = {
        **dict.fromkeys(record(0), text),
        "id": {"type": "integer"},
        "amount": number,
        "quantity": {"type": "integer"},
        "tags": {"type": "array", "items": text},
        "address": {"type": "object", "properties": address},
    }
    mapper = PluginMapper(SETTINGS, logging.getLogger("sdk"))
    mapper.register_raw_stream_schema("orders", {"type": "object", "properties": properties}, [])
    (orders,) = mapper.stream_maps["orders"]
    records = [record(n) for n in range(rows)]
    start = time.perf_counter()
    for original in records:
        orders.transform(original)
    return (time.perf_counter() - start) * 1_000_000 / rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--sdk-rows", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--cases",
        nargs="*",
        default=[""],
        help="only ways with one of the words, which must leave in those without maps",
    )
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-maps-"))
    try:
        make_rows(folder / "rows", chosen.rows)
        cases = {
            name: case
            for name, case in ways(folder).items()
            if any(word in name for word in chosen.cases)
        }
        results = interleaved(chosen.runs, cases)
        publish("maps_path", results, lambda name: name.partition(", maps")[0])
        if chosen.sdk_rows:
            print(f"SDK's mapper alone: {sdk_seconds(chosen.sdk_rows):.1f} s per million records")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
