"""A lease on a local disk: a lock that the system frees when its process ends."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from shared.storage.name_locks import NO_LOCKS, NameLock, lock_name
from target_spark.destinations.folders.folder_failures import writing
from target_spark.destinations.folders.local_folder import make_folders
from target_spark.destinations.leases.lease import Holder, NoLeasesError, holder_of


class LocalLease:
    """See `Lease`.

    Args:
        path: The file that names the holder.
        holder: This run.
    """

    def __init__(self, path: Path, holder: Holder) -> None:
        self._path = path
        self._holder = holder
        self._lock: NameLock | None = None

    def take(self) -> Holder | None:
        """See `Lease`."""
        if self._lock is not None:
            return None
        with writing(str(self._path)):
            make_folders(self._path.parent)
            try:
                self._lock = lock_name(self._path.parent, self._path.name)
            except BlockingIOError:
                return self._other()
            except OSError as error:
                if error.errno in NO_LOCKS:
                    raise NoLeasesError("the file system has no locks") from error
                raise
            self._path.write_text(json.dumps(self._holder.to_json()))
        return None

    def renew(self) -> bool:
        """See `Lease`: the lock lasts as long as the process."""
        return self._lock is not None

    def release(self) -> None:
        """See `Lease`."""
        lock, self._lock = self._lock, None
        if lock is not None:
            try:
                with writing(str(self._path)):
                    self._path.unlink(missing_ok=True)
            finally:
                lock.release()

    def _other(self) -> Holder:
        # Empty for an instant after it was locked.
        with suppress(OSError, ValueError):
            return holder_of(json.loads(self._path.read_bytes()))
        return Holder()
