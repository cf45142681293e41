"""Short runs of the tap: nothing new since the last run, and many streams of one tiny CSV file.

References in the same rounds: a Python that only imports PySpark and PyArrow, and the same streams
read by Spark.
Usage: python -m benchmarks.small_runs [ROUNDS]
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import Command, Measured, interleaved, module, run_piped
from benchmarks.results import publish

COUNTS = (10, 100, 500)
BY_SPARK = 10
LINES = 5
# One of the settings after which the driver leaves all reading to Spark; it is Spark's default.
READ_BY_SPARK = {"spark.sql.csv.filterPushdown.enabled": "true"}
IMPORTS = [sys.executable, "-c", "import pyspark.sql, pyarrow.compute, pyarrow.csv"]


def streams(folder: Path, count: int) -> list[dict[str, Any]]:
    """Write a tiny CSV file for each stream, and return their settings."""
    settings = []
    for number in range(count):
        path = folder / f"files-{count}" / f"s{number}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = (f"{n},name {n},{n}.25,2024-01-{n + 1:02}" for n in range(LINES))
        path.write_text("\n".join(["id,name,amount,day", *rows, ""]))
        stream = {"name": f"s{number}", "format": "csv", "path": str(path)}
        settings.append({**stream, "replication_method": "INCREMENTAL"})
    return settings


def tap(folder: Path, count: int, conf: dict[str, str] | None = None) -> list[str]:
    """Write the settings of so many streams, and return the command that reads them."""
    name = f"tap-{count}{'-spark' if conf else ''}.json"
    settings = {"streams": streams(folder, count), "spark": {"conf": conf or {}}}
    (folder / name).write_text(json.dumps(settings))
    return module("tap_spark.cli", "--config", name)


def again(folder: Path, count: int) -> list[str]:
    """Read the streams once, and return the command that then finds nothing new."""
    command = tap(folder, count)
    keep = "import sys; open(sys.argv[1], 'w').write(list(sys.stdin)[-1])"
    run_piped([command, [sys.executable, "-c", keep, f"state-{count}.json"]], folder)
    return [*command, "--state", f"state-{count}.json"]


def main(rounds: int) -> None:
    """Print medians, and what one stream more costs."""
    folder = Path(tempfile.mkdtemp(prefix="small-runs-"))
    try:
        cases: dict[str, Command] = {"imports alone": IMPORTS}
        cases |= {f"nothing new, {count} streams": again(folder, count) for count in (1, 100)}
        cases |= {f"{count} new streams": tap(folder, count) for count in COUNTS}
        by_spark = f"{BY_SPARK} new streams, by Spark"
        cases[by_spark] = tap(folder, BY_SPARK, READ_BY_SPARK)
        results = interleaved(
            rounds, {name: partial(run_piped, [case], folder) for name, case in cases.items()}
        )
    finally:
        shutil.rmtree(folder)
    publish("small_runs", results, "imports alone")
    few, many = (results[f"{count} new streams"] for count in (COUNTS[0], COUNTS[-1]))
    print(f"each further stream: {_slope(few, many):.4f} s")


def _slope(few: list[Measured], many: list[Measured]) -> float:
    seconds = [more.seconds - less.seconds for less, more in zip(few, many, strict=True)]
    return statistics.median(seconds) / (COUNTS[-1] - COUNTS[0])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
