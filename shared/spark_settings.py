"""The `spark` settings block as plain data; importing this does not import pyspark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.settings_check import Problem


@dataclass(frozen=True)
class SparkSettings:
    """How to start or reach Spark.

    Attributes:
        master: Spark master URL; ignored where `remote` is set.
        remote: Spark Connect URL (`sc://host:port`, or `local[N]` for a server of one's own).
        app_name: Name shown by the cluster.
        packages: Maven coordinates to put on the classpath.
        jars: Jar files to put on the classpath.
        conf: Spark configuration, passed through as is; wins over every default of ours.
    """

    master: str = "local[*]"
    remote: str | None = None
    app_name: str = "singer-spark"
    packages: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)


def spark_schema(app_name: str) -> dict[str, Any]:
    """Build the JSON Schema of the `spark` block.

    Args:
        app_name: Default of `spark.app_name`.
    """
    return {
        "type": "object",
        "description": "How to start or reach Spark.",
        "additionalProperties": False,
        "properties": {
            "master": {
                "type": "string",
                "minLength": 1,
                "default": SparkSettings.master,
                "description": "Spark master URL.",
                "examples": ["local[4]", "spark://host:7077", "yarn"],
            },
            "remote": {
                "type": "string",
                "minLength": 1,
                "secret": True,
                "description": "Spark Connect URL, used instead of `spark.master`.",
                "examples": ["sc://host:15002"],
            },
            "app_name": {
                "type": "string",
                "minLength": 1,
                "default": app_name,
                "description": "Name of the application in Spark's own interfaces.",
            },
            "packages": {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "default": [],
                "description": "Maven coordinates of packages to load.",
                "examples": [["org.apache.spark:spark-avro_2.13:4.1.1"]],
            },
            "jars": {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "default": [],
                "description": "Jar files to put on the classpath.",
            },
            "conf": {
                "type": "object",
                "additionalProperties": {
                    "type": ["string", "number", "boolean"],
                    "secret": True,
                },
                "default": {},
                "description": "Spark configuration, passed through as is.",
                "examples": [{"spark.driver.memory": "4g"}],
            },
        },
    }


def spark_settings(block: Mapping[str, Any]) -> SparkSettings:
    """Build the plan of a session from a validated `spark` block with its defaults."""
    return SparkSettings(
        master=block["master"],
        remote=block.get("remote"),
        app_name=block["app_name"],
        packages=tuple(block["packages"]),
        jars=tuple(block["jars"]),
        conf=text_values(block["conf"]),
    )


def text_values(block: Mapping[str, Any]) -> dict[str, str]:
    """Write the values of a free-form block the way Spark reads them (`true`, `8`)."""
    return {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in block.items()
    }


def spark_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Cross-field rules of the `spark` block."""
    block = settings.get("spark")
    if isinstance(block, Mapping) and "master" in block and "remote" in block:
        yield Problem(("spark",), "'master' and 'remote' exclude each other; give one of them")
