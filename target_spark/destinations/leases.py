"""Leases: one run at a time loads a stream into a table; others wait for it.

The lease of a table in a folder is a hidden file or object beside it. On a local disk it is a lock
that the system frees when its process ends. On S3 it is an object that is only ever written
conditionally, with a sign of life: the holder writes it again and again. Whoever has seen it
unchanged for as long as the object itself says takes it over; no two machines compare their
clocks. `RunLeases` holds those of a run: taken before the first record, renewed by a thread, and
kept until the end.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, Protocol

from shared.errors import AlreadyRunningError, SingerSparkError, Where, causes, may_pass
from shared.storage.access import StorageOptions, answer_code, remote
from shared.storage.owned_folders import (
    ENDED,
    LIVING,
    NO_LOCKS,
    NameLock,
    lock_name,
    owner_status,
    process_owner,
)
from shared.storage.urls import S3_SCHEMES, local_path
from target_spark.destinations.folders.stored_folder import make_folders
from target_spark.destinations.folders.table_folder import stream_file, writing
from target_spark.run_settings import ALLOW, FAIL, OverlapSettings, TargetConfig

_log = logging.getLogger(__name__)

PAUSE = 1.0


class NoLeasesError(SingerSparkError):
    """The storage has no means for leases: no locks, or no conditional writes."""


@dataclass(frozen=True)
class Holder:
    """A run that holds a lease.

    Attributes:
        run: Identifies the run.
        host: Its machine; empty if unknown.
        pid: Its process; 0 if unknown.
        since: When the run took the lease, ISO 8601 in UTC.
        is_alive: Whether it is known to live; False if it may have ended.
    """

    run: str = ""
    host: str = ""
    pid: int = 0
    since: str = ""
    is_alive: bool = field(default=True, compare=False)

    def __str__(self) -> str:
        who = f"process {self.pid} on {self.host}" if self.host else "another process"
        return f"{who}, since {self.since}" if self.since else who

    def to_json(self) -> dict[str, Any]:
        """Return what other runs read."""
        return {name: value for name, value in asdict(self).items() if name != "is_alive"}


def this_run() -> Holder:
    """Return this process as the holder of a new lease."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Holder(uuid.uuid4().hex, socket.gethostname(), os.getpid(), now)


def holder_of(result: Any) -> Holder:
    """Return the holder that another run has written; an unknown one for anything else."""
    if not isinstance(result, dict):
        return Holder()
    pid = result.get("pid")
    run, host, since = (str(result.get(name) or "") for name in ("run", "host", "since"))
    return Holder(run, host, pid if isinstance(pid, int) else 0, since)


class Lease(Protocol):
    """The right to load one stream into one table; used by one thread at a time.

    Attributes:
        expires: It is lost if it is not renewed.
    """

    expires: ClassVar[bool]

    def take(self) -> Holder | None:
        """Take the lease if it is free; return who holds it, None for this run.

        Raises:
            NoLeasesError: The storage has no means for it.
            DestinationError: The storage failed.
        """

    def renew(self) -> bool:
        """Show that this run lives; return whether it still holds the lease.

        Raises:
            DestinationError: The storage failed.
        """

    def release(self) -> None:
        """Give the lease back, if this run holds it.

        Raises:
            DestinationError: The storage failed.
        """


def already_running(
    holder: Holder, where: Where, shown: str, waited: float = 0.0
) -> AlreadyRunningError:
    """Return the error for a lease of another run."""
    after = f" after {waited:.0f} s" if waited >= 1 else ""
    return AlreadyRunningError(
        f"another run loads the stream into {shown}{after}: {holder}",
        where=where,
        hint="run again when it has ended, or set `overlapping_runs.policy`",
    )


@dataclass(eq=False)
class LocalLease:
    """See `Lease`: a lock, and the file that names its holder."""

    expires: ClassVar[bool] = False
    path: Path
    holder: Holder
    _lock: NameLock | None = field(default=None, init=False)

    def take(self) -> Holder | None:
        if self._lock is not None:
            return None
        with writing(str(self.path)):
            make_folders(self.path.parent)
            try:
                self._lock = lock_name(self.path.parent, self.path.name)
            except BlockingIOError:
                return self._other()
            except OSError as error:
                if error.errno in NO_LOCKS:
                    raise NoLeasesError("the file system has no locks") from error
                raise
            self.path.write_text(json.dumps(self.holder.to_json()))
        return None

    def renew(self) -> bool:
        """See `Lease`: the lock lasts as long as the process."""
        return self._lock is not None

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            try:
                with writing(str(self.path)):
                    self.path.unlink(missing_ok=True)
            finally:
                lock.release()

    def _other(self) -> Holder:
        # Empty for an instant after it was locked.
        with suppress(OSError, ValueError):
            return holder_of(json.loads(self.path.read_bytes()))
        return Holder()


_REFUSED = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "NoSuchKey"})
_UNKNOWN = frozenset({"NotImplemented", "501"})


@dataclass(eq=False)
class S3Lease:
    """See `Lease`.

    Args:
        expiry: Seconds without a sign of life after which others may take it over.
        proven: Set once the storage has refused a write by its condition; of all leases of a run.
    """

    expires: ClassVar[bool] = True
    url: str
    options: StorageOptions
    holder: Holder
    expiry: float
    clock: Callable[[], float] = time.monotonic
    proven: threading.Event = field(default_factory=threading.Event)
    _beats: int = field(default=0, init=False)
    _tag: str | None = field(default=None, init=False)
    _seen: tuple[str, float] | None = field(default=None, init=False)

    def take(self) -> Holder | None:
        """See `Lease`. A holder of another machine is not known to live before it is seen to."""
        with writing(self.url, self.options):
            if self._tag is not None:
                return None
            # 1. Create the object if there is none. Most tables have no lease: once the storage is
            #    known to keep conditions, the conditional write is the only request.
            result = None if self.proven.is_set() else self._read()
            if result is None:
                if self._put(IfNoneMatch="*"):
                    self._prove()
                    return None
                result = self._read()
                if result is None:
                    return Holder(is_alive=False)
            tag, content = result
            # 2. Another run has it. Take it over if it has been unchanged for its own expiry, by
            #    our clock; `IfMatch` lets one of several runs that wait win.
            other = holder_of(content.get("holder"))
            if other.run == self.holder.run:
                self._tag = tag  # The answer to our own request was lost.
                return None
            is_alive = self._is_alive(tag, content)
            if is_alive is False and self._put(IfMatch=tag):
                return None
            return Holder(other.run, other.host, other.pid, other.since, is_alive is True)

    def renew(self) -> bool:
        with writing(self.url, self.options):
            if self._tag is None:
                return False
            if self._put(IfMatch=self._tag):
                return True
            # The condition failed: the object is another run's now, or an earlier write of ours was
            # carried out and its answer lost, so that we do not know its tag.
            # If it is gone, another run may have had it.
            tag, content = self._read() or ("", {})
            is_ours = holder_of(content.get("holder")).run == self.holder.run
            self._tag = tag if is_ours else None
            return is_ours

    def release(self) -> None:
        if self.renew():
            with writing(self.url, self.options):
                self._remove()

    def _is_alive(self, tag: str, content: dict[str, Any]) -> bool | None:
        """Return whether the holder lives; None if that is not known yet."""
        # A process of this machine can be looked up; one of another machine only shows its beats.
        status = owner_status(content.get("owner") or {})
        if status in {LIVING, ENDED}:
            return status == LIVING
        now, before = self.clock(), self._seen
        if before is None or before[0] != tag:
            self._seen = tag, now
            return None if before is None else True
        expiry = content.get("expiry")
        unchanged = now - before[1]
        return False if unchanged > (expiry if isinstance(expiry, int | float) else 0) else None

    def _prove(self) -> None:
        """Raise NoLeasesError if the storage ignores conditions."""
        # Old object stores accept the header and write all the same: a second write, which must
        # fail, tells.
        if not self.proven.is_set() and self._put(IfNoneMatch="*"):
            self._remove()
            raise NoLeasesError("the storage ignores the conditions of writes")
        self.proven.set()

    def _remove(self) -> None:
        self._tag = None
        filesystem, path = remote(self.url, self.options)
        with suppress(FileNotFoundError):
            filesystem.rm_file(path)

    def _put(self, **condition: str) -> bool:
        """Write the object if a condition holds; return whether it does."""
        filesystem, path = remote(self.url, self.options)
        bucket, key, _ = filesystem.split_path(path)
        self._beats += 1
        content = {
            "holder": self.holder.to_json(),
            "owner": process_owner(),
            "expiry": self.expiry,
            "beat": self._beats,
        }
        body = json.dumps(content).encode()
        try:
            answer = filesystem.call_s3(
                "put_object", Bucket=bucket, Key=key, Body=body, **condition
            )
        except Exception as error:
            code = _code(error)
            if code in _UNKNOWN:
                raise NoLeasesError("the storage has no conditional writes") from error
            if code in _REFUSED:
                return False
            raise
        self._tag = str(answer["ETag"])
        return True

    def _read(self) -> tuple[str, dict[str, Any]] | None:
        filesystem, path = remote(self.url, self.options)
        bucket, key, _ = filesystem.split_path(path)
        try:
            tag = str(filesystem.call_s3("head_object", Bucket=bucket, Key=key)["ETag"])
            content = json.loads(filesystem.cat_file(path))
        except FileNotFoundError:
            return None
        except ValueError:
            content = None
        return tag, content if isinstance(content, dict) else {}


def _code(error: BaseException) -> str:
    """Return the code of the server's answer; `NotImplemented` if the client has no conditions."""
    for cause in causes(error, suppressed=True):
        if type(cause).__name__ == "ParamValidationError":
            return "NotImplemented"
        if code := answer_code(cause):
            return code
    return ""


@dataclass(frozen=True, eq=False)
class FolderLeases:
    """The leases of a run on tables in folders."""

    config: TargetConfig
    _holder: Holder = field(default_factory=this_run, init=False)
    _proven: threading.Event = field(default_factory=threading.Event, init=False)

    def __call__(self, table: str, stream: str) -> Lease | None:
        """Return the lease of a table's folder or URL for a stream; None without one."""
        path = local_path(table)
        if path is not None:
            real = os.path.realpath(path)
            return LocalLease(Path(stream_file(real, "lease", stream)), self._holder)
        if table.startswith(S3_SCHEMES):
            url, options = stream_file(table, "lease", stream), self.config.storage_options
            expiry = self.config.overlapping_runs.expiry_seconds
            return S3Lease(url, StorageOptions(options), self._holder, expiry, proven=self._proven)
        return None


_BEATS = 4
"""Renewals before a lease would expire."""


@dataclass
class _HeldLease:
    lease: Lease
    shown: str
    renewed: float
    is_lost: bool = False


@dataclass(eq=False)
class RunLeases:
    """Takes, renews and releases; methods may be called from any thread."""

    settings: OverlapSettings
    clock: Callable[[], float] = time.monotonic
    _held: dict[tuple[str, str], _HeldLease] = field(default_factory=dict, init=False)
    _without: set[tuple[str, str]] = field(default_factory=set, init=False)
    # One wait at a time: two runs that each wait for the other's table would wait for long.
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False)
    _over: threading.Event = field(default_factory=threading.Event, init=False)
    _heart: threading.Thread | None = field(default=None, init=False)

    def take(self, stream: str, shown: str, lease: Callable[[], Lease | None]) -> None:
        """Take the lease of a stream on a table, if the run does not have it.

        The name of the table in messages identifies it; without leases, `lease` returns None.

        Raises:
            AlreadyRunningError: Another run has it.
            DestinationError: The storage failed.
        """
        key = shown, stream
        if self.settings.policy == ALLOW or key in self._held or key in self._without:
            return
        with self._turn:
            if key in self._held or self._over.is_set():
                return
            result = lease()
            try:
                if result is None:
                    self._without.add(key)
                    return
                self._wait_for(result, Where(stream=stream), shown)
            except NoLeasesError as reason:
                self._without.add(key)
                _log.warning("other runs that load into %s are not detected: %s", shown, reason)
                return
            self._held[key] = _HeldLease(result, shown, self.clock())
            if result.expires and self._heart is None:
                self._heart = threading.Thread(target=self._beat, name="leases", daemon=True)
                self._heart.start()

    def _wait_for(self, lease: Lease, where: Where, shown: str) -> None:
        """Take a lease, or wait for it; raise AlreadyRunningError if another run keeps it.

        A holder that may have ended is waited for until the lease shows whether it lives.
        """
        begin, reported = self.clock(), Holder()
        while (holder := lease.take()) is not None:
            waited = self.clock() - begin
            is_over = self.settings.policy == FAIL or waited >= self.settings.wait_limit_seconds
            if holder.is_alive and is_over:
                raise already_running(holder, where, shown, waited)
            if holder != reported:
                _log.warning("%s: waiting for another run into %s: %s", where, shown, holder)
                reported = holder
            if self._over.wait(PAUSE):
                raise already_running(holder, where, shown, self.clock() - begin)

    def check(self, stream: str, shown: str) -> None:
        """Make sure that the run still has the lease of a stream, before a commit.

        Raises:
            AlreadyRunningError: Another run has taken it: this one seemed dead.
            DestinationError: The storage failed.
        """
        held = self._held.get((shown, stream))
        if held is None:
            return
        if self.clock() - held.renewed > self.settings.expiry_seconds / 2:
            self._renew(held)
        if held.is_lost:
            raise already_running(Holder(), Where(stream=stream), shown)

    def check_all(self) -> None:
        """Make sure that the run still has all of its leases; raises like `check`."""
        for shown, stream in list(self._held):
            self.check(stream, shown)

    def close(self) -> None:
        """Release all leases: the run has ended, however it ended.

        A storage that does not answer costs one request, however many leases there are.
        """
        self._over.set()
        with self._turn:
            if self._heart is not None:
                self._heart.join()
            while self._held:
                _, held = self._held.popitem()
                try:
                    held.lease.release()
                except SingerSparkError as error:
                    shown = held.shown
                    if may_pass(error) and self._held:
                        shown = f"{shown} and {len(self._held)} others"
                        self._held.clear()
                    _log.warning("the lease on %s was not released: %s", shown, error)

    def _beat(self) -> None:
        while not self._over.wait(self.settings.expiry_seconds / _BEATS):
            for held in list(self._held.values()):
                if self._over.is_set():
                    return
                try:
                    self._renew(held)
                except Exception as error:
                    _log.debug("the lease on %s was not renewed: %s", held.shown, error)

    def _renew(self, held: _HeldLease) -> None:
        at = self.clock()
        held.is_lost = not held.lease.renew()
        held.renewed = at
