"""Settings as JSON with lines of comments, for people to go on with."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.errors import DISK_FULL, DestinationError, SettingsError, Where
from shared.text_table import WIDTH, printable

_LONGEST = 56
"""Length up to which a value without comments stands in one line, with its indent."""


class Comment(str):
    """Text above the next key of an object (as a key itself) or the next item of an array."""

    __slots__ = ()


def config_text(head: Sequence[str], settings: Mapping[str, Any]) -> str:
    """Return settings as the text of a file.

    Args:
        head: Lines above everything.
        settings: With comments: keys of objects, whose values do not count, and items of arrays.
    """
    above = [part for line in head for part in (_wrapped(line, "// ") or ["//"])]
    return "\n".join((*above, *_lines(settings, ""))) + "\n"


def without_comments(value: Any) -> Any:
    """Return the settings alone."""
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if not isinstance(key, Comment)}
        return {key: without_comments(item) for key, item in kept.items()}
    if isinstance(value, list):
        return [without_comments(item) for item in value if not isinstance(item, Comment)]
    return value


def _lines(value: Any, indent: str) -> Iterator[str]:
    """Yield the lines of a value; the first one stands behind its key."""
    text = _json(without_comments(value))
    is_short = without_comments(value) == value and len(indent) + len(text) < _LONGEST
    if is_short or not isinstance(value, Mapping | list):
        yield text
        return
    pairs = list(value.items() if isinstance(value, Mapping) else ((item, item) for item in value))
    left = sum(not isinstance(key, Comment) for key, _ in pairs)
    inner = indent + "  "
    yield "{" if isinstance(value, Mapping) else "["
    for key, item in pairs:
        if isinstance(key, Comment):
            yield from _wrapped(key, f"{inner}// ")
            continue
        left -= 1
        name = f"{_json(key)}: " if isinstance(value, Mapping) else ""
        first, *others = _lines(item, inner)
        shown = [f"{inner}{name}{first}", *others]
        yield from shown[:-1]
        yield shown[-1] + ("," if left else "")
    yield indent + ("}" if isinstance(value, Mapping) else "]")


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


def _wrapped(text: str, start: str) -> list[str]:
    how: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(
        printable(text), WIDTH, initial_indent=start, subsequent_indent=start, **how
    )


def check_new(path: str, *, force: bool) -> None:
    """Check that a file may be written.

    Args:
        path: The file.
        force: A file that is there may be replaced.

    Raises:
        SettingsError: The file is there.
    """
    if Path(path).exists() and not force:
        raise SettingsError(
            f"'{path}' exists", hint="name another file, or give --force to replace it"
        )


def write_config(path: str, text: str, *, force: bool) -> None:
    """Write a settings file.

    Args:
        path: The file.
        text: Its text.
        force: Replace a file that is there.

    Raises:
        SettingsError: The file is there.
        DestinationError: It cannot be written.
    """
    check_new(path, force=force)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise DestinationError(
            f"cannot be written ({error.strerror})",
            where=Where(file=path),
            hint="see --output",
            lasts=error.errno not in DISK_FULL,
        ) from None
