"""docs/troubleshooting.md quotes messages that the programs still write."""

from __future__ import annotations

import re

import pytest
from doc_pages import HOLE, ROOT, code_texts

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
ROWS = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `")]
MESSAGES = [message for row in ROWS for message in re.findall(r"`([^`]+)`", row)]
LEAST_MESSAGES = 60


def is_written(message: str) -> bool:
    """Whether a text of the code holds the message; holes stand for anything."""
    pattern = ".*".join(map(re.escape, message.strip(HOLE).split(HOLE)))
    return any(re.search(pattern, text, re.DOTALL) for text in code_texts())


def test_there_are_messages() -> None:
    assert len(set(MESSAGES)) == len(MESSAGES) >= LEAST_MESSAGES


@pytest.mark.parametrize("message", MESSAGES)
def test_the_message_is_in_the_code(message: str) -> None:
    assert len(message.replace(HOLE, "").strip(" :'")) >= len("staging")
    assert is_written(message)


def test_others_are_not() -> None:
    assert not is_written("the message that no program … writes")
