"""Whether Spark's executors see the files of this process."""

from __future__ import annotations

import os

from shared.spark.server_record import own_server, visible_files
from shared.spark.spark_settings import SparkSettings


def executors_share_disk(settings: SparkSettings) -> bool:
    """Return whether the executors see the files that this process writes to local disk.

    They do in a local Spark, and in a local one of this user's `spark-server`.

    Args:
        settings: The `spark` block.
    """
    place = settings.remote or settings.master
    if place.startswith("local"):
        return True
    server = own_server(place, os.environ)
    return server is not None and server.files is not None and server.files == visible_files()
