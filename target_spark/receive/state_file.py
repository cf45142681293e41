"""The file that keeps the last STATE for the next run: locked, and replaced in one step."""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from shared.errors import AlreadyRunningError, DestinationError, SettingsError, Where
from shared.singer.messages import is_of_settings
from shared.storage.access import make_durable
from shared.storage.owned_folders import NO_LOCKS, NameLock, lock_name, process_owner

_log = logging.getLogger(__name__)

_LARGEST = 64 << 20
_SECONDS_TO_READ = 0.05
"""A tap takes longer from its start until it reads the file."""
_CLOCK_SECONDS = 60.0
"""How much the clocks of machines that share the file may differ."""


class StateFile:
    """A file with one STATE, locked against other runs until `close`.

    `prepare` does all that can fail for lack of space, before the STATE counts as written.

    Args:
        path: The file, which need not exist yet; its folder must.
        in_pipe: A tap that reads the file has started with this process.

    Raises:
        AlreadyRunningError: Another run has the file, or has changed it since this one started.
        SettingsError: It is a folder, device or FIFO, or holds something else than a STATE.
        DestinationError: It cannot be replaced.
    """

    def __init__(self, path: str, *, in_pipe: bool = False) -> None:
        self._where = Where(file=path)
        self._path = Path(os.path.realpath(path))
        self._next = self._path.with_name(f".{self._path.name}.next")
        self._lock: NameLock | None = None
        with self._failures():
            self._check_content()
            self._take_lock()
        try:
            with self._failures():
                self._check_age(in_pipe=in_pipe)
        except BaseException:
            self.close()
            raise

    def prepare(self, value: bytes) -> None:
        """Write a STATE durably beside the file.

        Raises:
            DestinationError: It cannot be written; the file still has the STATE before.
        """
        with self._failures(), os.fdopen(self._create(), "wb") as file:
            file.write(value + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def publish(self) -> None:
        """Let the prepared STATE take the place of the one before, durably.

        Raises:
            DestinationError: The file cannot be replaced.
        """
        with self._failures():
            self._next.replace(self._path)
            make_durable(str(self._path.parent))

    def close(self) -> None:
        """Let other runs take the file; safe to call twice."""
        lock, self._lock = self._lock, None
        with suppress(OSError):
            self._next.unlink(missing_ok=True)
        if lock is not None:
            lock.release()

    def _check_content(self) -> None:
        if not self._path.parent.is_dir():
            hint = "create it, or see --state"
            raise SettingsError("its folder is missing", where=self._where, hint=hint)
        if not self._path.exists():
            return
        if not self._path.is_file():
            raise SettingsError("is not a file", where=self._where, hint="see --state")
        is_state = self._path.stat().st_size <= _LARGEST and _is_state(self._path.read_bytes())
        if not is_state:
            raise SettingsError(
                "holds no STATE, which would replace its content",
                where=self._where,
                hint="see --state, or remove the file",
            )

    def _take_lock(self) -> None:
        try:
            self._lock = lock_name(self._path.parent, self._path.name)
        except BlockingIOError:
            raise self._other_run("another run keeps its STATE in it") from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            _log.warning("%s: not locked against other runs: the file system has no locks",
                         self._where)  # fmt: skip

    def _check_age(self, *, in_pipe: bool) -> None:
        """Compare the last change, on the clock of the file system, with the start of the run.

        The tap of this pipe may have read the STATE that another run has just replaced.
        """
        descriptor = self._create()
        now = os.fstat(descriptor).st_mtime
        os.close(descriptor)
        self._next.unlink()
        if in_pipe and self._path.exists():
            seconds = now - self._path.stat().st_mtime
            if seconds < -_CLOCK_SECONDS:
                _log.warning(
                    "%s: its time lies in the future (was the clock set back?): whether another "
                    "run has changed it is not known",
                    self._where,
                )
            elif seconds < _seconds_since_start() - _SECONDS_TO_READ:
                raise self._other_run("changed since this run began, by another run?")

    def _create(self) -> int:
        """Create the next file with mode and owner of the one before; return its descriptor."""
        self._next.unlink(missing_ok=True)
        descriptor = os.open(self._next, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):
            before = self._path.stat()
            os.fchown(descriptor, before.st_uid, before.st_gid)
        with suppress(FileNotFoundError):
            os.fchmod(descriptor, stat.S_IMODE(self._path.stat().st_mode))
        return descriptor

    def _other_run(self, problem: str) -> AlreadyRunningError:
        hint = "run again when it has ended, or give each pipe a --state of its own"
        return AlreadyRunningError(problem, where=self._where, hint=hint)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DestinationError(
                f"cannot keep the STATE: {error.strerror}",
                where=self._where,
                hint="the STATE before stays, if any; see --state",
            ) from error


def kept_state(path: str, input_fd: int) -> closing[StateFile]:
    """Return the file that keeps the STATE of a run, to be closed behind it."""
    return closing(StateFile(path, in_pipe=stat.S_ISFIFO(os.fstat(input_fd).st_mode)))


def json_values(text: str | bytes) -> Iterator[Any]:
    """Yield what a file may hold as one JSON text: the whole, or its last line."""
    for part in (text, *text.splitlines()[-1:]):
        with suppress(ValueError, RecursionError):
            yield json.loads(part)


def _is_state(data: bytes) -> bool:
    """Return whether the content of a file is empty, or a STATE in whole or in the last line."""
    content = data.strip()
    return not content or any(
        not (isinstance(value, Mapping) and is_of_settings(value)) for value in json_values(content)
    )


def _seconds_since_start() -> float:
    """Return the age of this process; 0 if the system does not tell."""
    ticks = process_owner()["started"]
    if ticks is None:
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")
