"""The lease of a run on a table for one stream, and the wait for that of another run."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol

from shared.errors import AlreadyRunningError, SingerSparkError, Where
from target_spark.run_settings import FAIL

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


def holder_of(found: Any) -> Holder:
    """Return the holder that another run has written; an unknown one for anything else."""
    if not isinstance(found, dict):
        return Holder()
    pid = found.get("pid")
    texts = (str(found.get(name) or "") for name in ("run", "host", "since"))
    run, host, since = texts
    return Holder(run, host, pid if isinstance(pid, int) else 0, since)


class Lease(Protocol):
    """The right to load one stream into one table; used by one thread at a time."""

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


def take_lease(
    lease: Lease,
    *,
    policy: str,
    longest: float,
    where: Where,
    shown: str,
    clock: Callable[[], float],
    pause: Callable[[float], bool],
) -> None:
    """Take a lease, or wait for it.

    A holder that may have ended is waited for until the lease shows whether it lives.

    Args:
        lease: The lease.
        policy: `WAIT` or `FAIL`.
        longest: Seconds to wait, with `WAIT`.
        where: The stream.
        shown: Name of the table in messages.
        clock: Returns seconds.
        pause: Sleeps for some seconds; returns whether the run ends.

    Raises:
        AlreadyRunningError: Another run holds it, or this one ends meanwhile.
    """
    begin, reported = clock(), Holder()
    while (holder := lease.take()) is not None:
        if holder.is_alive and (policy == FAIL or clock() - begin >= longest):
            raise already_running(holder, where, shown, clock() - begin)
        if holder != reported:
            _log.warning("%s: waiting for another run into %s: %s", where, shown, holder)
            reported = holder
        if pause(PAUSE):
            raise already_running(holder, where, shown, clock() - begin)


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
