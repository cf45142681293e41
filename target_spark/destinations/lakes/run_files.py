"""Files that a run keeps beside lake tables: notes of streams, and folders for parts.

A note is a hidden file that a living run owns. A local one is owned by a lock that the system
releases when the run ends, however it ends. It holds the old note and the new one, both durable;
one byte, written last, makes the new one valid, as a STATE waits for that. After a restart of the
machine, which may have lost the byte, the new one is valid. On other storages the file names its
owner; only on the same machine can others see whether it lives.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared.errors import SettingsError, Where
from shared.spark.connect import executors_share_disk
from shared.storage.access import StorageOptions, account_home, make_durable, remote
from shared.storage.owned_folders import (
    ENDED,
    LIVING,
    NO_LOCKS,
    NameLock,
    OwnedFolder,
    boot_id,
    lock_name,
    owner_status,
    process_owner,
)
from shared.storage.urls import join, local_path
from target_spark.destinations.folders.stored_folder import make_folders
from target_spark.destinations.folders.table_folder import (
    WORK_PREFIX,
    folder_name,
    stream_file,
    writing,
)
from target_spark.destinations.lakes.lake_table import Place
from target_spark.replays import Note, read_note
from target_spark.run_settings import TargetConfig

_log = logging.getLogger(__name__)
_OLD, _NEW = b"0", b"1"
"""The first byte of a local file: which of its notes is valid."""
_SPARE = ".new"
"""How the name of the file ends that replaces it."""


def note_file(config: TargetConfig, place: Place, stream: str) -> LocalNoteFile | RemoteNoteFile:
    """Return the note of a table and a stream."""
    table = place.folder or hidden_folder(config, place)
    url = stream_file(table, "uncovered", stream)
    path = local_path(url)
    if path is not None:
        return LocalNoteFile(Path(path))
    return RemoteNoteFile(url, StorageOptions(config.storage_options))


def hidden_folder(config: TargetConfig, place: Place) -> str:
    """Return where the notes and leases of a table are whose own folder only the catalog knows.

    Without `staging.root`, it is on this machine alone.
    """
    if config.staging.root is not None:
        root = join(config.staging.root, "notes")
    else:
        state = Path(os.environ.get("XDG_STATE_HOME", ""))
        if not state.is_absolute():  # As XDG asks. Runs by cron or sudo may have another HOME.
            state = Path(account_home(), ".local/state")
        if not state.is_absolute():
            raise SettingsError(
                "the user has no home folder for notes on loads",
                hint="set staging.root, or the environment variable XDG_STATE_HOME",
            )
        root = str(state / "singer-spark" / "notes")
    # Catalogs may list a table in lower case that was named with capitals.
    return join(root, folder_name(place.shown.casefold()))


@dataclass(eq=False)
class LocalNoteFile:
    """The note of one stream and table: a file on a disk with locks."""

    path: Path
    _lock: NameLock | None = field(default=None, init=False)
    _stored: Note = field(default=Note(), init=False)

    def take(self) -> Note:
        """Adopt the note for this run; may be repeated.

        Returns:
            The note of an ended run. Empty if there is none, if its run is not known to have ended,
            or if another living run owns it or the disk has no locks: then notes are not kept.

        Raises:
            DestinationError: The storage failed.
        """
        if self._lock is not None:
            return self._stored
        with writing(str(self.path)):
            make_folders(self.path.parent)
            try:
                self._lock = lock_name(self.path.parent, self.path.name)
            except BlockingIOError:  # Another run owns it.
                return Note()
            except OSError as error:
                if error.errno not in NO_LOCKS | {errno.EACCES}:
                    raise
                text = "replays are not detected, as '%s' cannot be locked: %s"
                _log.warning(text, self.path, error.strerror)
                return Note()
            # Of a run that was killed while it wrote.
            Path(f"{self.path}{_SPARE}").unlink(missing_ok=True)
            self._stored = next(self._notes(), Note())
            return self._stored

    def tokens(self) -> frozenset[str]:
        """Return the flushes of both notes, whoever owns them; raise like `take`."""
        with writing(str(self.path)):
            return frozenset().union(*(note.tokens for note in self._notes()))

    def write(self, note: Note) -> None:
        """Replace the note durably if this run owns the file; raise DestinationError on failure.

        A run that is killed meanwhile leaves the old note or the new one.
        """
        if self._lock is None or note == self._stored:
            return
        with writing(str(self.path)):
            # The old note is still valid.
            texts = (one.to_text() if one.entries else "" for one in (self._stored, note))
            notes = json.dumps([boot_id(), *texts]).encode()
            digest = hashlib.sha256(notes).hexdigest().encode()
            spare = Path(f"{self.path}{_SPARE}")
            spare.touch(0o600)
            with spare.open("r+b") as file:
                file.write(_OLD + digest + b"\n" + notes)
                file.flush()
                os.fsync(file.fileno())
                spare.replace(self.path)
                make_durable(str(self.path.parent))
                os.pwrite(file.fileno(), _NEW, 0)
        self._stored = note

    def close(self, *, remove: bool) -> None:
        """Release the file; with `remove`, delete it as well."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            with writing(str(self.path)):
                if remove or not self._stored.entries:
                    self.path.unlink(missing_ok=True)
        finally:
            lock.release()

    def _notes(self) -> Iterator[Note]:
        """Yield the notes of the file, the valid one first; nothing if it is damaged or missing."""
        with suppress(FileNotFoundError):
            content = self.path.read_bytes()
            digest, _, notes = content[1:].partition(b"\n")
            if hashlib.sha256(notes).hexdigest().encode() == digest:
                boot, old, new = json.loads(notes)
                is_old = content[:1] == _OLD and boot and boot == boot_id()
                yield from map(read_note, (old, new) if is_old else (new, old))


@dataclass(eq=False)
class RemoteNoteFile:
    """See `LocalNoteFile`: an object with its owner and the note."""

    url: str
    options: StorageOptions
    _is_owned: bool = field(default=False, init=False)
    _exists: bool = field(default=False, init=False)
    _is_ours: bool = field(default=False, init=False)
    _stored: Note = field(default=Note(), init=False)

    def take(self) -> Note:
        if self._is_owned:
            return self._stored
        with writing(self.url, self.options):
            owner, text = self._read()
        self._exists = owner is not None
        owner = owner or {}
        state = ENDED if owner.get("ended") else owner_status(owner)
        self._is_owned = state != LIVING
        if state != ENDED:
            return Note()
        self._stored = read_note(text)
        return self._stored

    def tokens(self) -> frozenset[str]:
        with writing(self.url, self.options):
            return read_note(self._read()[1]).tokens

    def write(self, note: Note) -> None:
        if self._is_owned and (note != self._stored or (note.entries and not self._is_ours)):
            self._put(note, process_owner())

    def close(self, *, remove: bool) -> None:
        if self._is_owned and self._exists:
            if remove or not self._stored.entries:
                with writing(self.url, self.options), suppress(FileNotFoundError):
                    filesystem, path = remote(self.url, self.options)
                    filesystem.rm_file(path)
            else:
                self._put(self._stored, {"ended": True})
        self._is_owned = self._exists = self._is_ours = False

    def _read(self) -> tuple[dict[str, Any] | None, str | None]:
        """Return owner and note of the object; no owner if it does not exist."""
        filesystem, path = remote(self.url, self.options)
        filesystem.invalidate_cache()
        try:
            owner, text = json.loads(filesystem.cat_file(path))
        except FileNotFoundError:
            return None, None
        except (ValueError, TypeError):
            return {}, None
        return owner, text

    def _put(self, note: Note, owner: dict[str, Any]) -> None:
        with writing(self.url, self.options):
            filesystem, path = remote(self.url, self.options)
            filesystem.pipe_file(path, json.dumps([owner, note.to_text()]).encode())
        self._stored, self._exists, self._is_ours = note, True, True


def parts_root(config: TargetConfig) -> str:
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
