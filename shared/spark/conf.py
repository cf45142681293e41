"""The `spark` settings, and the Spark configuration of our sessions. Pure, without pyspark."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shared.settings.checking import Problem
from shared.settings.kinds import POSITIVE, SECRET_VALUES, TEXT, TEXTS, setting
from shared.singer.platform import usable_cores


@dataclass(frozen=True)
class SparkSettings:
    """How to start or reach Spark; `conf` wins over every default of ours."""

    master: str = setting(
        TEXT,
        "Spark master URL.",
        default="local[*]",
        examples=["local[4]", "spark://host:7077", "yarn"],
    )
    remote: str | None = setting(
        TEXT,
        "Spark Connect URL, used instead of `spark.master`.",
        secret=True,
        examples=["sc://host:15002"],
    )
    app_name: str = setting(
        TEXT, "Name of the application in Spark's own interfaces.", default="singer-spark"
    )
    packages: tuple[str, ...] = setting(
        TEXTS,
        "Maven coordinates of packages to load.",
        default=[],
        examples=[["org.apache.spark:spark-avro_2.13:4.1.1"]],
    )
    jars: tuple[str, ...] = setting(TEXTS, "Jar files to put on the classpath.", default=[])
    conf: Mapping[str, str] = setting(
        SECRET_VALUES,
        "Spark configuration, passed on unchanged.",
        default={},
        examples=[{"spark.driver.memory": "4g"}],
    )
    executor_wait_seconds: float = setting(
        POSITIVE,
        "How long work may wait for the first executor of a cluster; then the run ends with exit "
        "code 17.",
        default=600,
    )


def spark_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the rules between settings of the `spark` block."""
    block = settings.get("spark")
    if isinstance(block, Mapping) and "master" in block and "remote" in block:
        yield Problem(("spark",), "'master' and 'remote' exclude each other; set one of them")


WAITING = "spark.singer.waitingTasks"
"""How many tasks of a Spark for both programs may hold a core while they wait for the target."""
SCHEDULES = "spark.singer.onlySchedules"
"""Set if rows never pass Java, which then only schedules tasks."""


def scheduling(settings: SparkSettings, only: bool) -> SparkSettings:
    """Return settings that say whether Java only schedules tasks; not to a server of others."""
    if not only or settings.remote is not None:
        return settings
    return replace(settings, conf={SCHEDULES: "true", **settings.conf})


POOLS_FILE = Path(__file__).with_name("fair_scheduler.xml")
SQL_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    # What does not fit a type is an error; Spark 3.5 made it null or cut it.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.timeType.enabled": "true",
    # Readers without Java take the years of INT96, Spark's default, from 1678 to 2261 alone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Upper and lower case as stream maps expect them.
    "spark.sql.icu.caseMappings.enabled": "true",
}
"""What every session has, also one of a Spark Connect server that others started."""

NO_CODE = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Java compiles no code for a query: for few rows that takes longer than to interpret it."""

KEPT_FOR_PAGES = {
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
}
"""Finished work of which Spark keeps plans and figures for its own pages; by default, 1000
executions and 100000 tasks, which in a long run are most of the driver's memory."""

PLANS_AS_TEXT = "spark.sql.ui.explainMode"
"""How Spark formats the plan of each query for its pages and event log; nobody reads it without.
Formatted as by default, that takes a twentieth of the driver's time with small queries."""

LOG_PARTITIONS = 8
PARTITIONS_PER_CORE = 8
"""Partitions of a shuffle on one machine; Spark's 200 are for clusters, and each costs a file."""

_ONE_PROCESS = re.compile(r"local(\[([0-9]+|\*)(\s*,\s*[0-9]+)?\])?")
"""Masters for which Spark creates a secret itself."""


def is_one_process(master: str) -> bool:
    """Return whether Spark runs in one process, without executors of their own."""
    return _ONE_PROCESS.fullmatch(master) is not None


def local_cores(settings: SparkSettings) -> int:
    """Return how many cores Spark uses on this machine alone; 0 if it uses others."""
    match = None if settings.remote else _ONE_PROCESS.fullmatch(settings.master)
    if match is None:
        return 0
    wanted = match[2] or "1"
    return usable_cores() if wanted == "*" else int(wanted)


def with_cores(settings: SparkSettings, waiting: int) -> SparkSettings:
    """Return settings with cores of their own for tasks that wait, on this machine alone."""
    cores = local_cores(settings)
    conf = {"spark.default.parallelism": str(cores), **settings.conf, WAITING: str(waiting)}
    return replace(settings, master=f"local[{cores + waiting}]", conf=conf)


def executor_python(conf: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Return the Python that executors run: on this machine alone, that of this program.

    Args:
        conf: The Spark configuration; `spark.pyspark.python` counts on a cluster.
        environ: The environment; so does PYSPARK_PYTHON.
    """
    if conf["spark.master"].startswith("local"):
        return sys.executable
    return conf.get("spark.pyspark.python") or environ.get("PYSPARK_PYTHON") or sys.executable


def session_conf(settings: SparkSettings) -> dict[str, str]:
    """Return the Spark configuration of a session: our defaults, then the user's `spark.conf`."""
    conf = {
        "spark.app.name": settings.app_name,
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Streams that are read or loaded at the same time share the cores.
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": POOLS_FILE.as_uri(),
        **SQL_DEFAULTS,
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    }
    cores = local_cores(settings) - int(settings.conf.get(WAITING, 0))
    # Delta replays a table's log by this many tasks; its 50 are for very large tables.
    conf["spark.databricks.delta.snapshotPartitions"] = str(cores or LOG_PARTITIONS)
    if cores:
        conf["spark.sql.shuffle.partitions"] = str(PARTITIONS_PER_CORE * cores)
    if (settings.remote or settings.master).startswith("local"):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
    if is_one_process(settings.remote or settings.master):
        # Others on this machine reach the ports, too. Java makes a secret that never leaves it.
        conf["spark.authenticate"] = "true"
    if settings.packages:
        conf["spark.jars.packages"] = ",".join(settings.packages)
    if settings.jars:
        conf["spark.jars"] = ",".join(settings.jars)
    if not _is_on(settings, "spark.ui.enabled"):
        conf |= KEPT_FOR_PAGES
        if not _is_on(settings, "spark.eventLog.enabled"):
            conf[PLANS_AS_TEXT] = "simple"
    if SCHEDULES in settings.conf:
        conf |= NO_CODE
    conf |= settings.conf
    conf["spark.master"] = place = settings.remote or settings.master
    if is_one_process(place):
        # One attempt for a task, also with `local[4,3]`: a second one would send rows again.
        conf["spark.master"] = re.sub(r"\s*,.*\]", "]", place)
    return conf


def _is_on(settings: SparkSettings, name: str) -> bool:
    """Return whether the user has turned a feature of Spark on that is off by default."""
    return settings.conf.get(name, "false").lower() == "true"
