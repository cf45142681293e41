"""Three ways to compute ten maps: Spark columns, Arrow columns, and the evaluator alone.

Run as `python -m benchmarks.maps_ways [--rows N] [--runs N]`. The rows and maps are those of
`benchmarks.maps_path`. All ways run in one session, in turn, and nothing is written; the first run
shows what Spark costs until it is warm. Arrow columns also run without Spark, in one thread, as in
a target that does not use the JVM.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from benchmarks.maps_path import SETTINGS, make_rows
from shared.formats.json_schema import spark_to_json_schema
from shared.maps.arrow_maps import ArrowMap, arrow_map
from shared.maps.expressions import columns
from shared.maps.expressions.values import uncompiled
from shared.maps.map_settings import transform_settings
from shared.maps.stream_maps import outputs
from shared.spark.conf import SparkSettings
from shared.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from shared.maps.transform import Transform

BATCH_ROWS = 65_536


def transform_of(struct: StructType) -> Transform:
    values = {**SETTINGS, "flattening_separator": "__", "flattening_max_key_length": 63}
    schema = spark_to_json_schema(struct)
    (output,) = outputs(transform_settings(values), "orders", schema, struct, ())
    assert output.transform is not None
    return output.transform


def mapped_by_spark(frame: DataFrame) -> DataFrame:
    return transform_of(frame.schema).apply(frame)


def mapped_by_evaluator(frame: DataFrame) -> DataFrame:
    """Map by the evaluator: Spark compiles copies only."""

    compiled = columns.compiled

    def by_evaluator(*args: Any, **options: Any) -> Any:
        value, reads = compiled(*args, **options)
        return value if value.source else uncompiled(value.kind, "a benchmark"), reads

    with mock.patch.object(columns, "compiled", by_evaluator):
        return mapped_by_spark(frame)


def unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def over_arrow(struct: StructType) -> ArrowMap:
    arrow = arrow_map(transform_of(struct), struct)
    assert arrow is not None
    assert not arrow.in_python
    return arrow


def mapped_over_arrow(frame: DataFrame) -> DataFrame:
    struct = frame.schema

    def mapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from benchmarks.maps_ways import over_arrow, transform_of  # noqa: PLC0415

        pa.set_cpu_count(1)
        arrow, names = over_arrow(struct), transform_of(struct).struct().names
        for batch in batches:
            yield from arrow.apply(pa.Table.from_batches([batch])).select(names).to_batches()

    return frame.mapInArrow(mapped, transform_of(struct).struct())


def without_spark(folder: Path) -> None:
    pa.set_cpu_count(1)
    arrow = None
    for path in sorted(folder.iterdir()):
        file = pq.ParquetFile(path)
        arrow = arrow or over_arrow(from_arrow_schema(file.schema_arrow))
        for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
            arrow.apply(pa.Table.from_batches([batch]))


def ways(spark: SparkSession, folder: Path) -> dict[str, Callable[[], None]]:
    def run(mapped: Callable[[DataFrame], DataFrame]) -> Callable[[], None]:
        def work() -> None:
            frame = mapped(spark.read.parquet(str(folder)))
            frame.write.format("noop").mode("overwrite").save()

        return work

    return {
        "no maps": run(lambda frame: frame),
        "no maps, through Arrow": run(lambda frame: frame.mapInArrow(unchanged, frame.schema)),
        "Spark columns": run(mapped_by_spark),
        "Arrow columns": run(mapped_over_arrow),
        "evaluator": run(mapped_by_evaluator),
        "Arrow columns, no Spark, 1 thread": lambda: without_spark(folder),
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
        timed: dict[str, list[float]] = {}
        for _ in range(chosen.runs + 1):
            for name, work in ways(spark, folder / "rows").items():
                start = time.perf_counter()
                work()
                timed.setdefault(name, []).append(time.perf_counter() - start)
        medians = {name: statistics.median(seconds[1:]) for name, seconds in timed.items()}
        for name, seconds in timed.items():
            ratio = medians[name] / medians["Spark columns"]
            warm = f"{medians[name]:6.1f} s, {ratio:5.2f} x Spark columns"
            print(f"{name:34} first {seconds[0]:6.1f} s, then {warm}", flush=True)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
