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


@dataclass
class Rejects:
    """Rejected records of one task, in bounded memory.

    Attributes:
        folder: Folder for all of them with their text, or None.
        options: Options of the storage of the folder.
        read: Records that the task has read.
    """

    folder: str | None = None
    options: StorageOptions = NO_OPTIONS
    read: int = 0
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

    def rows(self) -> list[dict[str, Any]]:
        """Return the result rows: the first records, the totals, and the file, which is durable."""
        rows: list[dict[str, Any]] = [{"kind": "read", "rows": self.read}] if self.read else []
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
