"""Pages quote messages that the programs still write."""

from __future__ import annotations

import re

import pytest
from doc_pages import HOLE, ROOT, code_texts

pytestmark = pytest.mark.once

LEAST_MESSAGES = 60


def quoted(page: str, heading: str) -> list[str]:
    """Return the messages in the first column of the tables below a heading."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").split(heading)[1]
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    return [message for row in rows for message in re.findall(r"`([^`]+)`", row)]


MESSAGES = quoted("troubleshooting.md", "# Troubleshooting\n")
OF_LAKES = quoted("lakes.md", "### Errors and remedies\n")


def is_written(message: str) -> bool:
    """Return whether a text of the code holds the message; holes match anything."""
    pattern = ".*".join(map(re.escape, message.strip(HOLE).split(HOLE)))
    return any(re.search(pattern, text, re.DOTALL) for text in code_texts())


def test_there_are_messages() -> None:
    assert len(set(MESSAGES)) == len(MESSAGES) >= LEAST_MESSAGES
    assert len(OF_LAKES) == 6


@pytest.mark.parametrize("message", [*MESSAGES, *OF_LAKES])
def test_the_message_is_in_the_code(message: str) -> None:
    assert len(message.replace(HOLE, "").strip(" :'")) >= len("staging")
    assert is_written(message)


def test_others_are_not() -> None:
    assert not is_written("the message that no program … writes")
