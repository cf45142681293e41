"""A session for each table, as formats read a commit's mark from its configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from shared.storage.files import StorageOptions
from shared.storage.s3a import SCHEMES, s3a_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from target_spark.run_settings import TargetConfig

BY_CASE = {"spark.sql.caseSensitive": "true"}
"""Configuration to read parts whose columns or fields `differs_by_case`."""


def own_session(spark: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    """Return a session with its own configuration, or the given one if that is not possible."""
    try:
        own = spark.newSession()
    except (AttributeError, NotImplementedError):  # Spark Connect
        own = spark
    for name, value in conf.items():
        own.conf.set(name, value)
    return own


def storage_conf(config: TargetConfig) -> dict[str, str]:
    """Return Spark's configuration for S3 from `storage_options`; `spark.conf` has precedence.

    Args:
        config: The settings.
    """
    if config.catalog is not None or not config.path.startswith(SCHEMES):
        return {}
    found = s3a_options(StorageOptions(config.storage_options).for_url(config.path))
    own = config.spark.conf
    return {name: text for name, text in found.items() if f"spark.hadoop.{name}" not in own}


@contextmanager
def configured(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Set the configuration of a session within the block."""
    before = {name: spark.conf.get(name, None) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def differs_by_case(dtype: Any) -> bool:
    """Return whether a type has columns or fields beside each other that differ in case only."""
    from pyspark.sql.types import ArrayType, MapType, StructType  # noqa: PLC0415

    if isinstance(dtype, StructType):
        names = {name.lower() for name in dtype.names}
        return len(names) < len(dtype) or any(differs_by_case(f.dataType) for f in dtype)
    if isinstance(dtype, MapType):
        return differs_by_case(dtype.keyType) or differs_by_case(dtype.valueType)
    return isinstance(dtype, ArrayType) and differs_by_case(dtype.elementType)
