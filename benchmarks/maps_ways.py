"""Three ways to compute ten maps: Spark columns, Arrow kernels, and the evaluator alone.

Run as `python -m benchmarks.maps_ways [--rows N] [--runs N]`. The rows and maps are those of
`benchmarks.maps_path`. All ways run in one session, in turn, and nothing is written; the first run
shows what Spark costs until it is warm. The kernels are written by hand for these maps, without
nulls and errors, so that they show the least that such a way can take. They also run without Spark,
in one thread, as in a target that does not use the JVM.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from benchmarks.maps_path import SETTINGS, make_rows
from shared.maps.expressions import columns
from shared.maps.expressions.values import uncompiled
from shared.maps.map_settings import transform_settings
from shared.maps.stream_maps import outputs
from shared.spark.session import start_session
from shared.spark.spark_settings import SparkSettings
from shared.types.json_schema import spark_to_json_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 65_536


def mapped_by_spark(frame: DataFrame) -> DataFrame:
    values = {**SETTINGS, "flattening_separator": "__", "flattening_max_key_length": 63}
    schema = spark_to_json_schema(frame.schema)
    (output,) = outputs(transform_settings(values), "orders", schema, frame.schema, ())
    assert output.transform is not None
    return output.transform.apply(frame)


def mapped_by_evaluator(frame: DataFrame) -> DataFrame:
    """Map by the evaluator: Spark compiles copies only."""

    compiled = columns.compiled

    def by_evaluator(*args: Any, **options: Any) -> Any:
        value, reads = compiled(*args, **options)
        return value if value.source else uncompiled(value.kind, "a benchmark"), reads

    with mock.patch.object(columns, "compiled", by_evaluator):
        return mapped_by_spark(frame)


def kernels(batch: pa.RecordBatch) -> pa.RecordBatch:
    table = batch.filter(pc.not_equal(batch["status"], "deleted"))
    email, quantity, address = table["email"], table["quantity"], table["address"]
    place = pc.struct_field(address, "place")
    total = pc.multiply(table["amount"], pc.cast(quantity, pa.float64()))
    salted = pc.binary_join_element_wise("a salt", email, "").to_pylist()
    made = {
        **{name: table[name] for name in ("id", "first_name", "status", "amount", "quantity")},
        "last_name": pc.utf8_upper(table["last_name"]),
        "created_at": table["created_at"],
        "tags": pc.binary_join(table["tags"], ","),
        **{f"address__{name}": pc.struct_field(address, name) for name in ("street", "city")},
        "latitude": pc.struct_field(place, "latitude"),
        "longitude": pc.struct_field(place, "longitude"),
        "email_domain": pc.replace_substring_regex(email, r"(?s)\A.*@", ""),
        "email_hash": pa.array([hashlib.md5(text.encode()).hexdigest() for text in salted]),
        "full_name": pc.binary_join_element_wise(table["first_name"], table["last_name"], " "),
        "total": total,
        "is_large": pc.greater(total, 100),
        "day": pc.strftime(table["created_at"], "%Y-%m-%d"),
        "label": pc.binary_join_element_wise(
            table["status"], pc.cast(table["id"], pa.string()), "-"
        ),
        "tier": pc.if_else(pc.greater_equal(quantity, 5), "gold", "basic"),
    }
    return pa.RecordBatch.from_pydict(made)


def unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def by_kernels(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    pa.set_cpu_count(1)
    return map(kernels, batches)


def mapped_by_kernels(frame: DataFrame, folder: Path) -> DataFrame:
    first = next(pq.ParquetFile(next(folder.iterdir())).iter_batches(1))
    return frame.mapInArrow(by_kernels, from_arrow_schema(kernels(first).schema))


def without_spark(folder: Path) -> None:
    pa.set_cpu_count(1)
    for path in sorted(folder.iterdir()):
        for batch in pq.ParquetFile(path).iter_batches(BATCH_ROWS, use_threads=False):
            kernels(batch)


def ways(spark: SparkSession, folder: Path) -> dict[str, Callable[[], None]]:
    def run(made: Callable[[DataFrame], DataFrame]) -> Callable[[], None]:
        def work() -> None:
            frame = made(spark.read.parquet(str(folder)))
            frame.write.format("noop").mode("overwrite").save()

        return work

    return {
        "no maps": run(lambda frame: frame),
        "no maps, through Arrow": run(lambda frame: frame.mapInArrow(unchanged, frame.schema)),
        "Spark columns": run(mapped_by_spark),
        "Arrow kernels": run(lambda frame: mapped_by_kernels(frame, folder)),
        "evaluator": run(mapped_by_evaluator),
        "Arrow kernels, no Spark, 1 thread": lambda: without_spark(folder),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3, help="beside the first")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-ways-"))
    spark = start_session(SparkSettings(app_name="maps-ways"))
    try:
        make_rows(folder / "rows", chosen.rows)
        found: dict[str, list[float]] = {}
        for _ in range(chosen.runs + 1):
            for name, work in ways(spark, folder / "rows").items():
                start = time.perf_counter()
                work()
                found.setdefault(name, []).append(time.perf_counter() - start)
        medians = {name: statistics.median(seconds[1:]) for name, seconds in found.items()}
        for name, seconds in found.items():
            ratio = medians[name] / medians["Spark columns"]
            warm = f"{medians[name]:6.1f} s, {ratio:5.2f} x Spark columns"
            print(f"{name:34} first {seconds[0]:6.1f} s, then {warm}", flush=True)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
