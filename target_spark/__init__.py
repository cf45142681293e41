"""target-spark: load Singer RECORD and BATCH messages with Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from target_spark.convert.batch_hooks import process_batch_files as process_batch_files
    from target_spark.convert.batch_hooks import read_batch_tables as read_batch_tables


def __getattr__(name: str) -> Any:
    # Looked up only when asked for: the command line must answer at once.
    if name in {"process_batch_files", "read_batch_tables"}:
        from target_spark.convert import batch_hooks  # noqa: PLC0415

        return getattr(batch_hooks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
