"""Classes in Python, named by their place instead of a format: plain ones, and DataSources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tap_spark.sources.source_declaration import SourceFormat


def _one_path(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if isinstance(stream.get("path"), list):
        yield "path", "must be one path for a class in Python"


SOURCE = SourceFormat(
    name="package.module.Class",
    implementation="tap_spark.sources.python_sources:python_source",
    takes=("path", "options", "schema"),
    on_driver=True,
    keys_on_driver=True,
    rules=(_one_path,),
)
