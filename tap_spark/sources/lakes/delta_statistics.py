"""The rows that the log of a Delta table on a local disk tells, by the package `deltalake`."""

from __future__ import annotations

MOST_FILES = 10_000
"""Files of a table whose statistics the driver reads."""


def rows_in_log(folder: str, version: int) -> int | None:
    """Return the rows of a version by the statistics of its files; None if they do not tell.

    Args:
        folder: Folder of the table.
        version: The version.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415
        from deltalake import DeltaTable  # noqa: PLC0415
        from deltalake.exceptions import DeltaError  # noqa: PLC0415
    except ImportError:
        return None
    try:
        table = DeltaTable(folder, version=version)
        # The statistics count rows that a deletion vector hides.
        if "deletionVectors" in (table.protocol().reader_features or ()):
            return None
        rows = pa.table(table.get_add_actions())["num_records"]
    except (DeltaError, OSError, ValueError, KeyError):
        return None
    return None if rows.null_count else sum(rows.to_pylist())
