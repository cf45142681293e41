"""What a stream reads, under the names of OpenLineage. Pure, without secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from shared.telemetry.dataset_names import DatasetName, catalog_table_name, jdbc_name, place_name
from shared.telemetry.run_observer import Dataset, schema_fields
from tap_spark.sources.table_names import name_parts

if TYPE_CHECKING:
    from tap_spark.state.stream_plans import StreamPlan
    from tap_spark.stream_config import StreamConfig


def source_datasets(plan: StreamPlan, conf: Mapping[str, str]) -> Iterator[Dataset]:
    """Yield what a stream reads: files or folders, or a table; nothing for queries and generators.

    Args:
        plan: The stream.
        conf: Spark's configuration, which says where catalogs are.
    """
    fields = schema_fields(plan.schema)
    for namespace, name in _names(plan.config, conf):
        yield Dataset(name, namespace, fields)


def _names(stream: StreamConfig, conf: Mapping[str, str]) -> Iterator[DatasetName]:
    yield from map(place_name, stream.paths)
    if stream.table is None:
        return
    parts = name_parts(stream.table)
    if stream.database is None or stream.database.url is None:
        yield catalog_table_name(conf, parts)
        return
    found = jdbc_name(stream.database.url, parts)
    if found is not None:
        yield found
