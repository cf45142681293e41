"""Folders for the parts of lake tables, shared by driver and executors."""

from __future__ import annotations

import atexit
import tempfile
import uuid
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from shared.errors import SettingsError, Where
from shared.spark.shared_disk import executors_share_disk
from shared.storage.files import NO_OPTIONS, StorageOptions
from shared.storage.owned_folders import OwnedFolder
from shared.storage.urls import join, local_path
from target_spark.destinations.folders.folder_failures import writing
from target_spark.destinations.folders.folder_names import WORK_PREFIX, folder_name
from target_spark.destinations.folders.local_folder import LocalFolder
from target_spark.destinations.folders.remote_folder import RemoteFolder
from target_spark.destinations.folders.table_folder import TableFolder
from target_spark.destinations.lakes.lake_table import Place

if TYPE_CHECKING:
    from target_spark.run_settings import TargetConfig


def pending_folders(config: TargetConfig) -> Callable[[Place, str], TableFolder]:
    """Return a function that opens the folder of a table: beside it, or below `staging.root`.

    It removes the folders of dead runs.

    Args:
        config: The settings.
    """
    options = StorageOptions(config.storage_options)
    root, search = cache(lambda: _root(config)), uuid.uuid4().hex

    def open_folder(place: Place, run: str) -> TableFolder:
        table = place.folder or join(root(), folder_name(place.shown))
        path = local_path(table)
        if path is None:
            return RemoteFolder(table, run, options or NO_OPTIONS).open()
        return LocalFolder(path, run, search).open()

    return open_folder


def _root(config: TargetConfig) -> str:
    """Return the folder for parts of tables whose own folder only the catalog knows.

    Raises:
        SettingsError: The executors would not find the folder.
        DestinationError: The system's temporary folder cannot be written.
    """
    if config.staging.root is not None:
        return join(config.staging.root, "parts")
    if not executors_share_disk(config.spark):
        raise SettingsError(
            "is required with a catalog: a folder that all executors share",
            where=Where(setting="staging.root"),
        )
    # Private, as others use the temporary folder too. Staging removes those of killed runs.
    with writing(tempfile.gettempdir()):
        owned = OwnedFolder(tempfile.gettempdir(), WORK_PREFIX)
    atexit.register(owned.close)
    return str(owned.path)
