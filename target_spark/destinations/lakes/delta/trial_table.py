"""A commit that is checked before others can see it: made on a copy of the table, of hard links."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shared.storage.owned_folders import OwnedFolder, remove_stale
from target_spark.destinations.lakes.lake_format import NeedsSparkError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_PREFIX = ".singer-spark-trial-"
_LOG = "_delta_log"
_LAST_CHECKPOINT = "_last_checkpoint"


class TrialTable:
    """A copy of a local Delta table, for one commit that `publish` makes that of the table.

    Used as a context manager: entering links the files of the current version into a private
    folder beside the table, leaving removes it.

    Args:
        opened: The table.
        path: Its folder, without folders of partitions.

    Raises:
        NeedsSparkError: Files of the table are in other folders: entering does nothing.

    Attributes:
        table: The copy.
    """

    table: DeltaTable

    def __init__(self, opened: DeltaTable, path: Path) -> None:
        self._opened = opened
        self._path = path

    def __enter__(self) -> TrialTable:
        from deltalake import DeltaTable  # noqa: PLC0415

        names = [*_log_files(self._path / _LOG), *map(_name, self._opened.file_uris())]
        if not all((self._path / name).exists() for name in names):
            raise NeedsSparkError  # those of a shallow clone, or below prefixes
        remove_stale(self._path.parent, _PREFIX)
        self._owned = OwnedFolder(self._path.parent, _PREFIX)
        self._copy = self._owned.path / "t"
        (self._copy / _LOG).mkdir(parents=True)
        for name in names:
            os.link(self._path / name, self._copy / name)
        self.table = DeltaTable(str(self._copy))
        self._linked = {file.name for file in self._copy.iterdir()}
        return self

    def __exit__(self, *_: object) -> None:
        self._owned.close()

    def publish(self) -> None:
        """Make the commit of the copy that of the table.

        Raises:
            deltalake.exceptions.CommitFailedError: Others have committed meanwhile.
        """
        from deltalake.exceptions import CommitFailedError  # noqa: PLC0415

        version = self.table.version()
        if version == self._opened.version():
            return
        added = [file.name for file in self._copy.iterdir() if file.name not in self._linked]
        for name in added:
            os.link(self._copy / name, self._path / name)
        commit = f"{_LOG}/{version:020d}.json"
        try:
            os.link(self._copy / commit, self._path / commit)
        except FileExistsError:
            for name in added:
                with suppress(OSError):
                    (self._path / name).unlink()
            raise CommitFailedError(f"version {version} exists") from None
        self._publish_checkpoint(version)

    def _publish_checkpoint(self, version: int) -> None:
        """Take the checkpoint that followed the commit; the table is complete without it."""
        with suppress(OSError):
            for file in (self._copy / _LOG).glob(f"{version:020d}.checkpoint*"):
                os.link(file, self._path / _LOG / file.name)
                latest = self._owned.path / _LAST_CHECKPOINT
                shutil.copyfile(self._copy / _LOG / _LAST_CHECKPOINT, latest)
                latest.replace(self._path / _LOG / _LAST_CHECKPOINT)


def _log_files(log: Path) -> list[str]:
    """Return the files of a log from the last checkpoint on."""
    names = sorted(file.name for file in log.iterdir() if file.name[:20].isdigit())
    checkpoints = [name[:20] for name in names if ".checkpoint" in name]
    first = checkpoints[-1] if checkpoints else ""
    also = [_LAST_CHECKPOINT] if (log / _LAST_CHECKPOINT).exists() else []
    return [f"{_LOG}/{name}" for name in (*names, *also) if name >= first]


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]
