"""A lease on a local disk: a locked file, which the system frees when its process ends."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from pathlib import Path

from shared.storage.lock_files import lock_file
from target_spark.destinations.folders.folder_failures import writing
from target_spark.destinations.folders.local_folder import make_folders
from target_spark.destinations.leases.lease import Holder, NoLeasesError, holder_of

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})


class LocalLease:
    """See `Lease`.

    Args:
        path: The file.
        holder: This run.
    """

    def __init__(self, path: Path, holder: Holder) -> None:
        self._path = path
        self._holder = holder
        self._fd: int | None = None

    def take(self) -> Holder | None:
        """See `Lease`."""
        if self._fd is not None:
            return None
        with writing(str(self._path)):
            make_folders(self._path.parent)
            try:
                fd = lock_file(self._path, 0o666)
            except BlockingIOError:
                return self._other()
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    raise NoLeasesError("the file system has no locks") from error
                raise
            self._fd = fd
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(self._holder.to_json()).encode(), 0)
        return None

    def renew(self) -> bool:
        """See `Lease`: the lock lasts as long as the process."""
        return self._fd is not None

    def release(self) -> None:
        """See `Lease`."""
        fd, self._fd = self._fd, None
        if fd is not None:
            try:
                with writing(str(self._path)):
                    self._path.unlink(missing_ok=True)
            finally:
                os.close(fd)

    def _other(self) -> Holder:
        # Empty for an instant after it was locked.
        with suppress(OSError, ValueError):
            return holder_of(json.loads(self._path.read_bytes()))
        return Holder()
