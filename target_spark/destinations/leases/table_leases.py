"""The leases of tables in folders: a hidden file or object beside each."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from shared.storage.files import StorageOptions
from shared.storage.s3a import SCHEMES
from shared.storage.urls import local_path
from target_spark.destinations.folders.folder_names import stream_file
from target_spark.destinations.leases.lease import Lease, this_run
from target_spark.destinations.leases.local_lease import LocalLease
from target_spark.destinations.leases.s3_lease import S3Lease

if TYPE_CHECKING:
    from target_spark.run_settings import TargetConfig

FolderLeases = Callable[[str, str], Lease | None]
"""Returns the lease of a table's folder or URL for a stream; None if its storage has none."""


def folder_leases(config: TargetConfig) -> FolderLeases:
    """Return the leases of a run.

    Args:
        config: The settings.
    """
    options, holder = StorageOptions(config.storage_options), this_run()
    expiry = config.overlapping_runs.expiry_seconds

    def of(table: str, stream: str) -> Lease | None:
        path = local_path(table)
        if path is not None:
            real = os.path.realpath(Path(path).expanduser())
            return LocalLease(Path(stream_file(real, "lease", stream)), holder)
        if table.startswith(SCHEMES):
            return S3Lease(stream_file(table, "lease", stream), options, holder, expiry)
        return None

    return of
