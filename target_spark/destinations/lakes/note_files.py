"""The note of one stream beside its table: a hidden file that a living run owns.

A local file is owned by a lock that the system releases when the run ends, however it ends. It
holds the old note and the new one, both durable; one byte, written last, makes the new one valid,
as a STATE waits for that. After a restart of the machine, which may have lost the byte, the new one
is valid.

On other storages the file names its owner; only on the same machine can others see whether it
lives.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from shared.storage.files import StorageOptions, join, local_path, make_durable, remote
from target_spark.destinations.folders.folder_failures import writing
from target_spark.destinations.folders.folder_names import folder_name
from target_spark.destinations.folders.local_folder import make_folders
from target_spark.destinations.lakes.lake_format import Place
from target_spark.replays import Note, read_note

if TYPE_CHECKING:
    from target_spark.config import TargetConfig


_OLD, _NEW = b"0", b"1"
"""The first byte of a local file: which of its notes is valid."""


class NoteFile(Protocol):
    """The note of one stream and table."""

    def take(self) -> Note:
        """Adopt the note for this run; may be repeated.

        Returns:
            The note of an ended run. Empty if there is none, if its run is not known to have ended,
            or if another living run owns it: then notes are not kept.

        Raises:
            DestinationError: The storage failed.
        """

    def write(self, note: Note) -> None:
        """Replace the note durably if this run owns the file; raise DestinationError on failure."""

    def close(self, *, remove: bool) -> None:
        """Release the file; with `remove`, delete it as well."""


def note_files(config: TargetConfig) -> Callable[[Place, str], NoteFile]:
    """Return a function that returns the note of a table and a stream.

    Args:
        config: The settings.
    """
    options = StorageOptions(config.storage_options)

    def of(place: Place, stream: str) -> NoteFile:
        table = place.folder or join(_root(config), folder_name(place.shown))
        folder, _, name = table.rstrip("/").rpartition("/")
        digest = hashlib.sha256(stream.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        url = join(folder or "/", f".{name}.uncovered-{digest}")
        path = local_path(url)
        return RemoteNoteFile(url, options) if path is None else LocalNoteFile(Path(path))

    return of


def _root(config: TargetConfig) -> str:
    """Return the folder for notes of tables whose own folder only the catalog knows."""
    if config.staging.root is not None:
        return join(config.staging.root, "notes")
    state = os.environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return join(state, "singer-spark", "notes")


class LocalNoteFile:
    """See `NoteFile`: a file on a disk with locks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._spare = path.with_name(f"{path.name}.new")
        self._fd: int | None = None
        self._stored = Note()

    def take(self) -> Note:
        """See `NoteFile`."""
        if self._fd is not None:
            return self._stored
        with writing(str(self._path)):
            make_folders(self._path.parent)
            self._fd = _locked(self._path)
            if self._fd is None:
                return Note()
            self._spare.unlink(missing_ok=True)  # Of a run that was killed while it wrote.
            self._stored = _valid_note(os.pread(self._fd, os.fstat(self._fd).st_size, 0))
            return self._stored

    def write(self, note: Note) -> None:
        """See `NoteFile`. A run that is killed meanwhile leaves the old note or the new one."""
        if self._fd is None or note == self._stored:
            return
        with writing(str(self._path)):
            new = _written(self._spare, _both_notes(self._stored, note))
            # A run that opened the old file and waits for its lock finds another file here.
            self._spare.replace(self._path)
            old, self._fd = self._fd, new
            os.close(old)
            make_durable(str(self._path.parent))
            os.pwrite(new, _NEW, 0)
        self._stored = note

    def close(self, *, remove: bool) -> None:
        """See `NoteFile`."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        with writing(str(self._path)):
            if remove or not self._stored.entries:
                self._path.unlink(missing_ok=True)
        os.close(fd)


class RemoteNoteFile:
    """See `NoteFile`: an object with its owner and the note."""

    def __init__(self, url: str, options: StorageOptions) -> None:
        self._url = url
        self._options = options
        self._is_owned = False
        self._exists = False
        self._is_ours = False
        self._stored = Note()

    def take(self) -> Note:
        """See `NoteFile`."""
        if self._is_owned:
            return self._stored
        with writing(self._url, self._options):
            filesystem, path = remote(self._url, self._options)
            filesystem.invalidate_cache()
            try:
                owner, text = json.loads(filesystem.cat_file(path))
            except FileNotFoundError:
                owner, text = None, None
            except (ValueError, TypeError):
                owner, text = {}, None
        self._exists = owner is not None
        state = _owner_status(owner or {})
        self._is_owned = state != "living"
        if state != "ended":
            return Note()
        self._stored = read_note(text)
        return self._stored

    def write(self, note: Note) -> None:
        """See `NoteFile`."""
        if self._is_owned and (note != self._stored or (note.entries and not self._is_ours)):
            self._put(note, _owner())

    def close(self, *, remove: bool) -> None:
        """See `NoteFile`."""
        if self._is_owned and self._exists:
            if remove or not self._stored.entries:
                with writing(self._url, self._options), suppress(FileNotFoundError):
                    filesystem, path = remote(self._url, self._options)
                    filesystem.rm_file(path)
            else:
                self._put(self._stored, {"ended": True})
        self._is_owned = self._exists = self._is_ours = False

    def _put(self, note: Note, owner: dict[str, Any]) -> None:
        with writing(self._url, self._options):
            filesystem, path = remote(self._url, self._options)
            filesystem.pipe_file(path, json.dumps([owner, note.to_text()]).encode())
        self._stored, self._exists, self._is_ours = note, True, True


def _locked(path: Path) -> int | None:
    """Return the file, open and locked; None if another run owns it, or locks do not work."""
    while True:
        made = not path.exists()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        # Its last owner may have removed it before it was locked.
        with suppress(FileNotFoundError):
            if os.fstat(fd).st_ino == path.stat().st_ino:
                if made:
                    make_durable(str(path.parent))
                return fd
        os.close(fd)


def _both_notes(old: Note, new: Note) -> bytes:
    """Return the content of a file in which the old note is still valid."""
    texts = (note.to_text() if note.entries else "" for note in (old, new))
    notes = json.dumps([_boot(), *texts]).encode()
    return _OLD + hashlib.sha256(notes).hexdigest().encode() + b"\n" + notes


def _valid_note(content: bytes) -> Note:
    """Return the valid note of a file; an empty one if the file is damaged."""
    digest, _, notes = content[1:].partition(b"\n")
    if hashlib.sha256(notes).hexdigest().encode() != digest:
        return Note()
    boot, old, new = json.loads(notes)
    return read_note(old if content[:1] == _OLD and boot and boot == _boot() else new)


def _written(path: Path, content: bytes) -> int:
    """Write a file that this run owns from its first moment, and return it open."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        done = 0
        while done < len(content):
            done += os.pwrite(fd, content[done:], done)
        os.fsync(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _owner() -> dict[str, Any]:
    """Return the identity of this process, which the same machine can look up."""
    return {"place": _place(), "pid": os.getpid(), "started": _started(os.getpid())}


def _owner_status(owner: dict[str, Any]) -> str:
    """Return whether the process that wrote a file is `living`, has `ended`, or is unknown."""
    if owner.get("ended"):
        return "ended"
    place, pid = owner.get("place"), owner.get("pid")
    here = _place()
    if not here or place != here or not isinstance(pid, int) or not owner.get("started"):
        return "unknown"
    return "living" if _started(pid) == owner["started"] else "ended"


def _place() -> list[str]:
    """Return machine, boot and process namespace; empty if they are unknown."""
    boot = _boot()
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return []
    return [socket.gethostname(), boot, space] if boot else []


def _boot() -> str:
    """Return what identifies the machine since its last start; empty if that is unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """Return the start of a process in ticks since boot; None if it does not exist."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name of the program, in brackets, may hold anything.
    status, *rest = fields.rpartition(")")[2].split()
    return None if status in {"Z", "X"} else rest[18]
