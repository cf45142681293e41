"""tap-spark: read anything Spark can read and stream it as Singer messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tap_spark.send.batch_hook import get_batches as get_batches


def __getattr__(name: str) -> Any:
    # Looked up only when asked for: the command line must answer at once.
    if name == "get_batches":
        from tap_spark.send.batch_hook import get_batches  # noqa: PLC0415

        return get_batches
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
