"""What executors keep of records that do not fit: the first ones to tell, all of them in a file."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from shared.storage import NO_OPTIONS, StorageOptions, join, make_durable, open_output
from target_spark.plans import Reject
from target_spark.rejects import reject_line

MAX_REJECTS = 100
"""Rejected records of one task that are told apart; further ones are counted."""


@dataclass
class Rejects:
    """Records of one task that do not fit, bounded in memory.

    Attributes:
        folder: Where all of them are written with their text; None for nowhere.
        options: Of the storage of the folder.
    """

    folder: str | None = None
    options: StorageOptions = NO_OPTIONS
    found: list[Reject] = field(default_factory=list)
    count: int = 0
    _url: str = ""
    _file: pa.NativeFile | None = None

    def add(self, reject: Reject, original: bytes) -> None:
        """Notes one record."""
        self.count += 1
        if len(self.found) < MAX_REJECTS:
            self.found.append(reject)
        if self.folder is not None:
            if self._file is None:
                self._url = join(self.folder, f"rejects-{uuid.uuid4().hex}")
                self._file = open_output(self._url, options=self.options)
            self._file.write(reject_line(reject, original))

    def rows(self) -> list[dict[str, Any]]:
        """As result rows: those told apart, their whole number, and the file, which is durable."""
        if not self.count:
            return []
        rows: list[dict[str, Any]] = [
            {"kind": "reject", "url": reject.file, "rows": reject.line, "text": reject.reason}
            for reject in self.found
        ]
        if self._file is not None:
            self._file.close()
            self._file = None
            make_durable(self._url)
            rows.append({"kind": "reject file", "url": self._url})
        return [*rows, {"kind": "rejected", "rows": self.count}]
