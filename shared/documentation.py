"""The pages of the documentation: in the installed wheel, or in the checkout."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path

from shared.errors import SettingsError

_INSTALLED = Path(__file__).parent / "pages"
_CHECKOUT = Path(__file__).parents[1] / "docs"
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_NEAR, _LIKENESS = 5, 0.5


def topics() -> dict[str, str]:
    """Return the name and title of each page."""
    pages = sorted((_INSTALLED if _INSTALLED.is_dir() else _CHECKOUT).glob("*.md"))
    found = ((page.stem, _HEADING.search(page.read_text("utf-8"))) for page in pages)
    return {name: title[2] if title else name for name, title in found if name != "README"}


def page_text(topic: str) -> str:
    """Return a page, or the part of a page below a heading, as Markdown.

    Args:
        topic: E.g. `s3`, `docs/s3.md` or `s3#credentials`.

    Raises:
        SettingsError: There is no such page or heading; names what is near.
    """
    name, _, anchor = topic.removeprefix("docs/").partition("#")
    name = name.removesuffix(".md")
    if name not in topics():
        raise _unknown(name, list(topics()))
    folder = _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT
    text = (folder / f"{name}.md").read_text("utf-8")
    text = re.sub(r"\A<!--.*?-->\s*", "", text, flags=re.DOTALL)
    return _section(text, name, anchor) if anchor else text


def _section(text: str, page: str, anchor: str) -> str:
    headings = list(_HEADING.finditer(text))
    slugs = [_slug(heading[2]) for heading in headings]
    if anchor not in slugs:
        raise _unknown(f"{page}#{anchor}", [f"{page}#{slug}" for slug in slugs])
    at = slugs.index(anchor)
    level = len(headings[at][1])
    after = (other.start() for other in headings[at + 1 :] if len(other[1]) <= level)
    return text[headings[at].start() : next(after, len(text))].rstrip() + "\n"


def _slug(heading: str) -> str:
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def _unknown(topic: str, known: list[str]) -> SettingsError:
    near = get_close_matches(topic, known, _NEAR, _LIKENESS)
    hint = f"near: {', '.join(near)}" if near else "`docs` without a topic lists them"
    return SettingsError(f"there is no page '{topic}'", hint=hint)
