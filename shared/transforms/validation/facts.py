"""What the bytes of a block say that its parsed columns do not."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9_\- .]+\Z")
_SPELT_OUT = re.compile(rb"\\u00[2-7]")
NULL = rb"null"
TEXT = rb'"'
NUMBER = rb"[-0-9]"


class Facts:
    """Tells whether a property may have a value of a kind anywhere in a block.

    Args:
        data: JSON lines; None for rows of a file whose columns have types, which hold no value
            of another kind, and null for what is missing.
        unexpected: Objects may have properties that their schema does not name.
    """

    def __init__(self, data: bytes | None, *, unexpected: bool = True) -> None:
        self.unexpected = unexpected
        self._data = data
        self._known: dict[tuple[str, bytes], bool] = {}

    def may_hold(self, name: str, kind: bytes) -> bool:
        """Whether `"name": value` may be there, at any depth, with such a value.

        Args:
            name: Of the property.
            kind: `NULL`, `TEXT` or `NUMBER`.
        """
        if self._data is None:
            return False
        found = self._known.get((name, kind))
        if found is None:
            found = self._known[name, kind] = self._search(self._data, name, kind)
        return found

    def _search(self, data: bytes, name: str, kind: bytes) -> bool:
        # A name can be written with escapes, and would not be found then.
        if not _PLAIN.match(name):
            return True
        if b"\\u00" in data and _SPELT_OUT.search(data):
            return True
        return re.search(b'"%b"\\s*:\\s*%b' % (re.escape(name.encode()), kind), data) is not None
