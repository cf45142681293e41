"""Names of tables with catalog and schema, as users write them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PLAIN = re.compile(r"[^\s.\"`\[\]]+")
_PART = re.compile(
    r'\s*(?:"((?:[^"]|"")+)"|`((?:[^`]|``)+)`|\[((?:[^\]]|\]\])+)\]|([^\s."`\[\]]+))\s*'
)


def name_parts(text: str) -> tuple[str, ...]:
    """Split a table name at the dots outside of quotes.

    Args:
        text: `schema.table`; a part that holds dots, spaces or quotes is quoted by `"`, a
            backtick, or brackets, with the closing one doubled inside the name.

    Raises:
        ValueError: It is not a table name.
    """
    parts: list[str] = []
    at = 0
    while match := _PART.match(text, at):
        double, back, bracket, plain = match.groups()
        found = (
            (double or "").replace('""', '"')
            or (back or "").replace("``", "`")
            or (bracket or "").replace("]]", "]")
            or plain
        )
        parts.append(found)
        at = match.end()
        if at == len(text):
            return tuple(parts)
        if text[at] != ".":
            break
        at += 1
    raise ValueError(f"{text!r} is not a table name")


def joined_name(parts: Sequence[str], quote: str = '"') -> str:
    """Join parts into a name that `name_parts` splits into the same parts.

    Args:
        parts: Catalog, schema and table, or the last ones of these.
        quote: `"` or a backtick.
    """
    return ".".join(
        part if _PLAIN.fullmatch(part) else quote + part.replace(quote, quote * 2) + quote
        for part in parts
    )
