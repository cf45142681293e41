"""Each exit code is documented with a message that the programs write, and with a next step."""

from __future__ import annotations

import re
from functools import cache

import pytest
from doc_pages import HOLE, ROOT, code_texts

from shared import errors
from shared.errors import EXIT_CODES, SingerSparkError

pytestmark = pytest.mark.once

PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
LEAST_LETTERS = 12
CODES = pytest.mark.parametrize("kind", EXIT_CODES, ids=lambda kind: kind.__name__)


@cache
def patterns() -> tuple[re.Pattern[str], ...]:
    """Return the texts of the code that say something."""
    long = (text for text in code_texts() if len(re.sub(r"\W", "", text)) >= LEAST_LETTERS)
    return tuple(re.compile(".+".join(map(re.escape, text.split(HOLE)))) for text in long)


def is_written(example: str) -> bool:
    return any(pattern.search(example) for pattern in patterns())


def with_codes(kind: type[SingerSparkError]) -> list[type[SingerSparkError]]:
    """Return a class and all below it that have an exit code of their own."""
    own = [kind] if "exit_code" in vars(kind) else []
    return own + [each for below in kind.__subclasses__() for each in with_codes(below)]


def test_every_class_is_listed() -> None:
    declared = [kind for kind in with_codes(SingerSparkError) if kind.__module__ == errors.__name__]
    assert set(declared) == set(EXIT_CODES)


@CODES
def test_each_has_an_example_and_a_next_step(kind: type[SingerSparkError]) -> None:
    for name in ("meaning", "example", "next_step"):
        # Of the base class by inheritance, it would be the text of another exit code.
        assert vars(kind).get(name), name
    section = PAGE.split(f"\n## Exit code {kind.exit_code}\n")[1].split("\n## ")[0]
    assert section.strip() == f"``{kind.example}``\n{kind.next_step}"
    assert kind.next_step.endswith(".")


@CODES
def test_the_programs_write_the_example(kind: type[SingerSparkError]) -> None:
    assert is_written(kind.example)
    assert len(kind.example.splitlines()) == 1


def test_others_are_not_written() -> None:
    assert not is_written("stream 'orders': something that no program says")
