"""Texts for people: tables for terminals, and nothing that shows a secret. Names in SQL."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

WIDTH = 80
_GAP = "  "
_NARROWEST = 6


def quoted(*names: str) -> str:
    """Return a name of one or more parts as Spark SQL quotes it: dots in a part are characters."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def text_table(
    rows: Sequence[Sequence[str]], width: int | None = WIDTH, cuttable: Collection[int] = ()
) -> Iterator[str]:
    """Yield the lines of a table.

    Args:
        rows: Cells, first those of the head.
        width: Most characters in a line; None for any number.
        cuttable: Columns to cut, with an ellipsis, as far as the width asks for it.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while width is not None and sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        widest = max(cuttable, key=lambda column: widths[column])
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    for row in rows:
        cells = (cut(text, most).ljust(most) for text, most in zip(row, widths, strict=True))
        yield _GAP.join(cells).rstrip()


def printable(text: str, keep: str = "") -> str:
    """Replace what could steer a terminal or end a line, except `keep`: names may hold anything."""
    return "".join(sign if sign.isprintable() or sign in keep else "?" for sign in text)


def cut(text: str, most: int) -> str:
    """Return a printable text of so many characters at most, with an ellipsis if it is longer."""
    return printable(text if len(text) <= most else f"{text[: most - 1]}…")


SHORTEST = 6
"""Characters of a secret; shorter ones would take words out of ordinary texts."""

_secrets: set[str] = set()


def hide(secret: str) -> None:
    """Hide a secret from now on, also in JSON, quoted by Python, in HTML, and on one line."""
    if len(secret) >= SHORTEST:
        quoted = (json.dumps(secret, ensure_ascii=is_ascii) for is_ascii in (True, False))
        forms = {secret, *(text[1:-1] for text in (*quoted, repr(secret))), html.escape(secret)}
        joined = {" ".join(secret.split()), " ".join(secret.splitlines())}
        _secrets.update(form for form in forms | joined if len(form) >= SHORTEST)


def without_secrets(text: str) -> str:
    """Return a text with `***` in place of secrets."""
    if not any(secret in text for secret in _secrets):
        return text
    longest_first = sorted(map(re.escape, _secrets), key=len, reverse=True)
    return re.sub("|".join(longest_first), "***", text)


def without_secrets_inside(value: Any) -> Any:
    """Return the same with `***` in its texts: numbers may have the digits of a secret."""
    if isinstance(value, Mapping):
        return {key: without_secrets_inside(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [*map(without_secrets_inside, value)]
    return without_secrets(value) if isinstance(value, str) else value
