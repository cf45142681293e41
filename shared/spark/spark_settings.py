"""The `spark` settings block as plain data; importing this does not import pyspark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shared.settings.checking import Problem
from shared.settings.kinds import POSITIVE, SECRET_VALUES, TEXT, TEXTS, setting


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
