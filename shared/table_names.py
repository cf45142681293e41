"""Names of tables with their catalog and schema, as users write them. Pure."""

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
            backtick, or brackets, with the closing one doubled where it is meant.

    Raises:
        ValueError: It is no table name.
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
    raise ValueError(f"{text!r} is no table name")


def joined_name(parts: Sequence[str], quote: str = '"') -> str:
    """Join parts so that `name_parts` gives them back.

    Args:
        parts: Catalog, schema and table, or the last ones of these.
        quote: `"` or a backtick.
    """
    return ".".join(
        part if _PLAIN.fullmatch(part) else quote + part.replace(quote, quote * 2) + quote
        for part in parts
    )
