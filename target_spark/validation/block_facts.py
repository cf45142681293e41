"""Facts about the bytes of a block that its parsed columns do not show."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

_PLAIN = re.compile(r"[A-Za-z0-9_\- .]+\Z")
_SPELT_OUT = re.compile(rb"\\u00[2-7]")
_TOGETHER = 100
"""Names in one pattern: what the search keeps in memory grows with them."""

NULL = "null"
TEXT = '"'
NUMBER = "[-0-9]"

Asked = dict[str, set[str]]
"""Kind → names."""


class Facts:
    """Reports whether a property may have a value of a kind anywhere in a block.

    Args:
        data: JSON lines; None for rows of a file with typed columns, which cannot hold a value
            of another kind, and have null for a missing value.
        unexpected: Objects may have properties that their schema does not name.
        asked: Names looked up in earlier blocks, extended by this one. Values of a kind are rare:
            all names are searched in one pass, and one by one only if that finds any.
    """

    def __init__(
        self, data: bytes | None, *, unexpected: bool = True, asked: Asked | None = None
    ) -> None:
        self.unexpected = unexpected
        self._data = data
        self._asked: Asked = {} if asked is None else asked
        self._absent: dict[str, set[str]] = {}
        self._known: dict[tuple[str, str], bool] = {}

    def may_hold(self, name: str, kind: str) -> bool:
        """Return whether `"name": value` may occur, at any depth, with a value of the kind.

        Args:
            name: Name of the property.
            kind: `NULL`, `TEXT` or `NUMBER`.
        """
        if self._data is None:
            return False
        # A name can be written with escapes, and would not be found then.
        if not _PLAIN.match(name) or self._is_spelt_out:
            return True
        found = self._known.get((name, kind))
        if found is None:
            found = name not in self._absent_names(kind) and self._search([name], kind)
            self._known[name, kind] = found
            self._asked.setdefault(kind, set()).add(name)
        return found

    @cached_property
    def _is_spelt_out(self) -> bool:
        data = self._data or b""
        return b"\\" in data and _SPELT_OUT.search(data) is not None

    @cached_property
    def _text(self) -> pa.Array:
        data = self._data or b""
        ends = pa.py_buffer(struct.pack("=qq", 0, len(data)))
        return pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(data)])

    def _absent_names(self, kind: str) -> set[str]:
        """Return the names looked up before that do not have such a value in this block."""
        if kind not in self._absent:
            groups = list(_groups(sorted(self._asked.get(kind, ()))))
            self._absent[kind] = {
                name for group in groups if not self._search(group, kind) for name in group
            }
        return self._absent[kind]

    def _search(self, names: Sequence[str], kind: str) -> bool:
        words = "|".join(name.replace(".", r"\.") for name in names)
        found = pc.match_substring_regex(self._text, rf'"(?:{words})"\s*:\s*{kind}')
        return bool(found[0].as_py())


def _groups(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + _TOGETHER] for start in range(0, len(names), _TOGETHER))
