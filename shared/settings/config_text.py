"""Settings as YAML with comments, for people to go on with."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.errors import SettingsError
from shared.settings.checking import Json, check_folder
from shared.settings.loading import settings_format
from shared.settings.texts import WIDTH, printable

_LONGEST = 56
"""Length up to which a value without comments stands in one line, with its indent."""
_PLAIN = re.compile(r"[A-Za-z][\w./-]*( [\w./-]+)*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


class Comment(str):
    """Text above the next key of an object (as a key itself) or the next item of an array."""

    __slots__ = ()


def config_text(head: Sequence[str], settings: Mapping[str, Any], form: str = "YAML") -> str:
    """Return settings as the text of a file.

    Args:
        head: Lines of comment above everything.
        settings: With comments: keys of objects, whose values do not count, and items of arrays.
        form: `YAML`, or `JSON`, which has no comments.
    """
    if form == "JSON":
        return json.dumps(without_comments(settings), indent=2) + "\n"
    above = [part for line in head for part in (_comment(line, WIDTH) or ["#"])]
    return "\n".join((*above, *yaml_lines(settings, _LONGEST))) + "\n"


def without_comments(value: Any) -> Any:
    """Return the settings alone."""
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if not isinstance(key, Comment)}
        return {key: without_comments(item) for key, item in kept.items()}
    if isinstance(value, list):
        return [without_comments(item) for item in value if not isinstance(item, Comment)]
    return value


def yaml_lines(value: Json, longest: int = 0, width: int = WIDTH) -> list[str]:
    """Write plain data as lines of YAML; text that is not plain words as JSON does.

    Args:
        value: The data, with or without comments.
        longest: Length up to which a list or an object behind its key stands in one line.
        width: Length of lines of comments.
    """
    bare = without_comments(value)
    if not isinstance(value, Mapping | list):
        return [_flow(value)]
    items = ((None, item) for item in value) if isinstance(value, list) else value.items()
    lines: list[str] = []
    for key, item in items:
        comment = item if key is None else key
        if isinstance(comment, Comment):
            lines += _comment(comment, width)
        else:
            lines += _entry(key, item, longest, width)
    return lines if bare else [*lines, _flow(bare)]


def _entry(key: str | None, item: Json, longest: int, width: int) -> Iterator[str]:
    """Yield the lines of an item behind its key; None for an item of a list."""
    name = "-" if key is None else f"{_scalar(key)}:"
    bare = without_comments(item)
    line = f"{name} {_flow(bare)}"
    is_block = isinstance(item, Mapping | list) and (len(line) > longest or key is None)
    if bare == item and not (bare and is_block):
        yield line
        return
    below = yaml_lines(item, longest - 2, width - 2)
    if key is None:
        yield f"- {below.pop(0)}"
    else:
        yield name
    is_flush = key is not None and isinstance(item, list) and bare
    yield from below if is_flush else (f"  {line}" for line in below)


def _flow(value: Json) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{_scalar(key)}: {_flow(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return f"[{', '.join(map(_flow, value))}]" if isinstance(value, list) else _scalar(value)


def _scalar(value: Json) -> str:
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value)
    if is_plain and value.lower() not in _WORDS:
        return str(value)
    text = json.dumps(value, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in text)


def _comment(text: str, width: int) -> list[str]:
    how: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(printable(text), width, initial_indent="# ", subsequent_indent="# ", **how)


def check_new(path: str, *, force: bool) -> None:
    """Check that a file may be written.

    Raises:
        SettingsError: The file is there, without `force`, or TOML, or its folder is missing.
    """
    if settings_format(Path(path)) == "TOML":
        raise SettingsError(
            f"'{path}' would be TOML", hint="name a file that ends in .yaml, .yml or .json"
        )
    check_folder(path, "--output")
    if os.path.exists(path) and not force:  # noqa: PTH110
        raise SettingsError(
            f"'{path}' exists", hint="name another file, or give --force to replace it"
        )
