"""Records that a task has read and rejected: the first are reported, all are written to a file."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from shared.storage.files import NO_OPTIONS, StorageOptions, make_durable, open_output
from shared.storage.urls import join
from target_spark.core.load_plans import Reject
from target_spark.load.rejects import reject_line

MAX_REJECTS = 100
"""Rejected records of one task that are reported; further ones are only counted."""
MAX_UNDECLARED = 20
"""Properties without a place in the SCHEMA that are reported."""


@dataclass
class Rejects:
    """Rejected records of one task, in bounded memory.

    Attributes:
        folder: Folder for all of them with their text, or None.
        options: Options of the storage of the folder.
        read: Records that the task has read.
        undeclared: Properties that the SCHEMA lacks, each with the number of values seen.
        cut: Properties with times whose digits below microseconds are cut.
    """

    folder: str | None = None
    options: StorageOptions = NO_OPTIONS
    read: int = 0
    undeclared: dict[str, int] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    found: list[Reject] = field(default_factory=list)
    count: int = 0
    _url: str = ""
    _file: pa.NativeFile | None = None

    def add(self, reject: Reject, original: bytes) -> None:
        """Add one record."""
        self.count += 1
        if len(self.found) < MAX_REJECTS:
            self.found.append(reject)
        if self.folder is not None:
            if self._file is None:
                self._url = join(self.folder, f"rejects-{uuid.uuid4().hex}")
                self._file = open_output(self._url, options=self.options)
            self._file.write(reject_line(reject, original))

    def add_undeclared(self, name: str, count: int) -> None:
        """Count values of a property that the SCHEMA lacks."""
        if name in self.undeclared or len(self.undeclared) < MAX_UNDECLARED:
            self.undeclared[name] = self.undeclared.get(name, 0) + count

    def rows(self) -> list[dict[str, Any]]:
        """Return the result rows: the first records, the totals, and the file, which is durable."""
        rows: list[dict[str, Any]] = [{"kind": "read", "rows": self.read}] if self.read else []
        rows += [
            {"kind": "undeclared", "rows": count, "text": name}
            for name, count in self.undeclared.items()
        ]
        rows += [{"kind": "cut", "text": name} for name in sorted(self.cut)]
        if not self.count:
            return rows
        rows += [
            {"kind": "reject", "url": reject.file, "rows": reject.line, "text": reject.reason}
            for reject in self.found
        ]
        if self._file is not None:
            self._file.close()
            self._file = None
            make_durable(self._url)
            rows.append({"kind": "reject file", "url": self._url})
        return [*rows, {"kind": "rejected", "rows": self.count}]
