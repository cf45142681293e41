"""Ownership of tables by the streams of a run, so that they do not destroy each other's rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from shared.errors import SettingsError, Where
from target_spark.destinations.destination import TableId

_OVERWRITE = "overwrite"


@dataclass(frozen=True)
class _Claim:
    stream: str
    table: TableId
    method: str
    partition_by: tuple[str, ...]


class TableOwners:
    """The tables that streams of this run have claimed; methods may be called from any thread."""

    def __init__(self) -> None:
        self._claims: dict[str, _Claim] = {}
        self._places: dict[str, dict[str, _Claim]] = {}
        self._below: dict[str, dict[str, _Claim]] = {}
        self._alone: dict[str, str] = {}
        self._lock = threading.Lock()

    def claim(
        self, stream: str, table: TableId, method: str, partition_by: tuple[str, ...] = ()
    ) -> None:
        """Claim the table of a stream before anything is written.

        Raises:
            SettingsError: Another stream has the table, and one of them would lose rows, or they
                ask for different partitions.
        """
        new = _Claim(stream, table, method, partition_by)
        with self._lock:
            for other in self._beside(new):
                if not table.shared or _OVERWRITE in (method, other.method):
                    raise _refusal(other, new)
                if other.stream in self._alone:
                    raise _not_alone(other, new, self._alone[other.stream])
                if _disagree(other, new):
                    raise _partitions(other, new)
            self._add(new)

    def claim_alone(self, stream: str, message: str) -> None:
        """Check that a message of a stream may remove or mark the rows that it does not name.

        Raises:
            SettingsError: Rows of another stream in the table would be among them.
        """
        with self._lock:
            self._alone[stream] = message
            claim = self._claims.get(stream)
            others = [] if claim is None else self._beside(claim)
            if claim is not None and others:
                raise _not_alone(claim, others[0], message)

    def _add(self, claim: _Claim) -> None:
        old = self._claims.get(claim.stream)
        if old is not None:
            self._places[old.table.key].pop(old.stream)
            for folder in _folders(old.table.key):
                self._below[folder].pop(old.stream, None)
        self._claims[claim.stream] = claim
        self._places.setdefault(claim.table.key, {})[claim.stream] = claim
        for folder in _folders(claim.table.key):
            self._below.setdefault(folder, {})[claim.stream] = claim

    def _beside(self, claim: _Claim) -> list[_Claim]:
        """Return claims of other streams on the same table, or on one in the folder of the other.

        With thousands of streams, a search through all of them would take minutes.
        """
        key = claim.table.key
        near = (
            self._places.get(key, {}),
            self._below.get(key, {}),
            *(self._places.get(folder, {}) for folder in _folders(key)),
        )
        every = (other for claims in near for other in claims.values())
        return [other for other in every if other.stream != claim.stream]


def _folders(key: str) -> Iterator[str]:
    """Yield all folders that a table is in."""
    return (key[:end] for end, char in enumerate(key) if char == "/")


def _disagree(one: _Claim, other: _Claim) -> bool:
    """Return whether streams of one table ask for different partitions."""
    asked = {claim.partition_by for claim in (one, other)} - {()}
    return one.table.key == other.table.key and len(asked) > 1


def _refusal(first: _Claim, second: _Claim) -> SettingsError:
    one, two = first.table, second.table
    shared = f"the table {one.shown}"
    if one.shown != two.shown:
        how = "may be one table" if one.key == two.key else "are nested in each other"
        shared = f"{one.shown} and {two.shown}, which {how}"
    is_lost = _OVERWRITE in (first.method, second.method)
    why = ": with `load_method` 'overwrite', rows of one of them would be lost" if is_lost else ""
    return SettingsError(
        f"streams '{first.stream}' and '{second.stream}' would share {shared}{why}",
        where=Where(stream=second.stream, setting="streams"),
        hint="give one of them another `table` or `schema` in `streams`",
    )


def _partitions(first: _Claim, second: _Claim) -> SettingsError:
    return SettingsError(
        f"streams '{first.stream}' and '{second.stream}' share the table {second.table.shown}, and "
        "ask for different partitions",
        where=Where(stream=second.stream, setting="partition_by"),
        hint="give them the same `partition_by`, or another `table` to one of them",
    )


def _not_alone(claim: _Claim, other: _Claim, message: str) -> SettingsError:
    setting = "`deletes` in the tap" if message == "KEYS" else "`activate_version: true`"
    return SettingsError(
        f"{message} would also remove or mark rows of the stream '{other.stream}', which "
        f"shares the table {claim.table.shown}",
        where=Where(stream=claim.stream, setting="streams"),
        hint=f"give one of them another `table`, or do without {setting}",
    )
