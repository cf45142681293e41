"""Records whose rows the store has refused: a further conversion of their files leaves them out."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from target_spark.core.load_plans import Batch

_Files = tuple[str, str, tuple[str, ...]]


class Refusals:
    """What stores have refused in a run; methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: set[str] = set()
        self._refused: dict[_Files, dict[int, str]] = {}

    def trace(self, stream: str) -> None:
        """Let the parts of a stream tell the origins of their rows from now on."""
        with self._lock:
            self._streams.add(stream)

    def are_traced(self, stream: str) -> bool:
        """Return whether the parts of a stream tell the origins of their rows."""
        with self._lock:
            return stream in self._streams

    def add(self, batch: Batch, refused: Mapping[int, str]) -> None:
        """Leave out records of a batch.

        Args:
            batch: Files that one job converts.
            refused: Origin within this conversion → reason.
        """
        with self._lock:
            self._refused[_key(batch)] = {**self._refused.get(_key(batch), {}), **refused}

    def of(self, batch: Batch) -> Mapping[int, str]:
        """Return the records of a batch to leave out, as in `add`."""
        with self._lock:
            return self._refused.get(_key(batch), {})

    def forget(self, batch: Batch) -> None:
        """Forget the records of a flush: it has been committed or aborted."""
        flush = _key(batch)[:2]
        with self._lock:
            self._refused = {key: one for key, one in self._refused.items() if key[:2] != flush}


def _key(batch: Batch) -> _Files:
    return batch.stream.stream, batch.token, tuple(file.url for file in batch.files)
