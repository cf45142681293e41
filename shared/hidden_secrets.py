"""Secrets of this process, which no text for people may show, whoever has written it."""

from __future__ import annotations

import html
import json
import re

SHORTEST = 6
"""Characters of a secret; shorter ones would take words out of ordinary texts."""

_secrets: set[str] = set()


def hide(secret: str) -> None:
    """Hide a secret from now on, as text, in JSON and in HTML."""
    if len(secret) >= SHORTEST:
        _secrets.update((secret, json.dumps(secret)[1:-1], html.escape(secret)))


def without_secrets(text: str) -> str:
    """Return a text with `***` in place of secrets."""
    if not any(secret in text for secret in _secrets):
        return text
    longest_first = sorted(map(re.escape, _secrets), key=len, reverse=True)
    return re.sub("|".join(longest_first), "***", text)
