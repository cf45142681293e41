"""Where the Spark Connect server of this user is that stays between runs, if one runs.

A process of its own holds the server. Its record, which only its user can read, tells others where
it is; a lock on the record tells whether it runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.spark.class_archive import archive_folder
from shared.storage.owned_folders import is_locked, is_trusted

DEFAULT_PORT = 15002
DEFAULT_IDLE_MINUTES = 30.0


@dataclass(frozen=True)
class ServerRecord:
    """A server that runs.

    Attributes:
        pid: The process that holds it.
        port: Where it listens, on loopback.
        token: What its clients must send.
        files: What files it and its executors see; None if executors run elsewhere.
    """

    pid: int
    port: int
    token: str
    files: str | None = None

    @property
    def url(self) -> str:
        """Return what `spark.remote` must be."""
        return f"sc://localhost:{self.port}"


def running_server(environ: Mapping[str, str]) -> ServerRecord | None:
    """Return the server of this user; None if none runs."""
    path = record_path(environ)
    if path is None or not is_trusted(path) or not is_locked(path):
        return None
    text = path.read_text(encoding="utf-8")
    return ServerRecord(**json.loads(text)) if text else None


def own_server(url: str, environ: Mapping[str, str]) -> ServerRecord | None:
    """Return the server of this user if it is at this URL."""
    record = running_server(environ)
    return record if record is not None and url.removesuffix("/") == record.url else None


def visible_files() -> str | None:
    """Identify the files that this process sees; None if the system does not tell.

    Processes of one machine see others in a container, or with a temporary folder of their own.
    """
    try:
        mounts = os.readlink("/proc/self/ns/mnt")  # noqa: PTH115
    except OSError:
        return None
    root = Path("/").stat()
    return f"{mounts} {root.st_dev}:{root.st_ino}"


def record_path(environ: Mapping[str, str]) -> Path | None:
    """Return the place of the record; None if caches are turned off."""
    folder = archive_folder(environ)
    return None if folder is None else folder / "server" / "record.json"
