"""The guard of leases: one run at a time loads a stream into a table.

Leases are taken before the first record, renewed by a thread, and kept until the end of the run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.errors import SingerSparkError, Where, may_pass
from target_spark.config import table_name
from target_spark.destinations.leases import (
    Holder,
    Lease,
    NoLeasesError,
    already_running,
    take_lease,
)
from target_spark.load.guards.guard import Guard
from target_spark.run_settings import ALLOW

if TYPE_CHECKING:
    from target_spark.convert.stream_tables import StreamTables
    from target_spark.core.load_plans import StreamSchema
    from target_spark.destinations.destination import Destination
    from target_spark.load.guards.guard import ConvertStep
    from target_spark.run_settings import OverlapSettings, TargetConfig

_log = logging.getLogger(__name__)
_BEATS = 4


@dataclass
class _HeldLease:
    lease: Lease
    shown: str
    renewed: float
    is_lost: bool = False


@dataclass(eq=False)
class RunLeases:
    """Takes, renews and releases; methods may be called from any thread.

    Args:
        settings: What to do about other runs.
        clock: Returns seconds.
    """

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

        Args:
            stream: Name of the stream.
            shown: Name of the table in messages, which identifies it.
            lease: Returns the lease; None if the destination has no leases.

        Raises:
            AlreadyRunningError: Another run has it.
            DestinationError: The storage failed.
        """
        key, settings = (shown, stream), self.settings
        if settings.policy == ALLOW or key in self._held or key in self._without:
            return
        with self._turn:
            if key in self._held or self._over.is_set():
                return
            result = lease()
            try:
                if result is None:
                    self._without.add(key)
                    return
                take_lease(
                    result,
                    policy=settings.policy,
                    longest=settings.wait_limit_seconds,
                    where=Where(stream=stream),
                    shown=shown,
                    clock=self.clock,
                    pause=self._over.wait,
                )
            except NoLeasesError as reason:
                self._without.add(key)
                _log.warning("other runs that load into %s are not detected: %s", shown, reason)
                return
            self._held[key] = _HeldLease(result, shown, self.clock())
            if self._heart is None:
                self._heart = threading.Thread(target=self._beat, name="leases", daemon=True)
                self._heart.start()

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


@dataclass(eq=False)
class LeaseGuard(Guard):
    """Takes the lease of each stream, and makes sure before each change that the run has it.

    Args:
        config: The settings.
        leases: The leases of the run.
        destination: Has leases.
        tables: The tables of the run.
    """

    config: TargetConfig
    leases: RunLeases
    destination: Destination
    tables: StreamTables

    def must_see(self, stream: str) -> bool:  # noqa: ARG002
        """Return True: the lease comes first."""
        return True

    def before_stream(self, stream: StreamSchema, source: str) -> tuple[int, ...]:  # noqa: ARG002
        """Take the lease of a stream; raise AlreadyRunningError if another run has it."""
        request = self.tables.request(stream)
        shown = self.destination.table(request.name).shown
        self.leases.take(stream.stream, shown, lambda: self.destination.lease(request))
        return ()

    def before_conversion(self, step: ConvertStep) -> None:
        """Take the lease of a stream that has a new table."""
        self.before_stream(step.batch.stream, step.batch.source)

    def before_change(self, stream: str) -> None:
        """Raise AlreadyRunningError if another run has taken over the table."""
        shown = self.destination.table(table_name(self.config, stream)).shown
        self.leases.check(stream, shown)

    def before_publish(self) -> Sequence[str]:
        """Raise AlreadyRunningError if another run has taken over a table."""
        self.leases.check_all()
        return ()

    def close(self) -> None:
        """Release all leases."""
        self.leases.close()
