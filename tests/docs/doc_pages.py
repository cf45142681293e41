"""The pages that users read, cut into what can be checked."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("shared", "tap_spark", "target_spark")
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        ROOT / "benchmarks/README.md",
        ROOT / "tests/README.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)
HOLE = "…"

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_HEREDOC = re.compile(r"^cat > (\S+) <<'END'\n(.*?)^END$", re.DOTALL | re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: The page it is in.
        language: The word after the fence; may be empty.
        text: What is inside.
    """

    page: Path
    language: str
    text: str

    def __str__(self) -> str:
        first = self.text.strip().splitlines()[0]
        return f"{name_of(self.page)}: {first[:40]}"

    @property
    def files(self) -> dict[str, str]:
        """Return the files that a shell block writes: name → text."""
        return {actual[1]: actual[2] for actual in _HEREDOC.finditer(self.text)}

    @property
    def commands(self) -> list[str]:
        """Return the command lines of a shell block, without prompts, comments and files."""
        text = _HEREDOC.sub("", self.text).replace("\\\n", " ")
        lines = [re.sub(r"^\$ ", "", line.strip()) for line in text.splitlines()]
        return [line for line in lines if line and not line.startswith("#")]


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(*languages: str) -> list[Block]:
    """Return all fenced blocks in some languages."""
    actual = (
        Block(page, match[2], match[3])
        for page in PAGES
        for match in _FENCE.finditer(text_of(page))
    )
    return [block for block in actual if block.language in languages]


def prose(page: Path) -> str:
    """Return the page without its fenced blocks."""
    return _FENCE.sub("", text_of(page))


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    return frozenset(map(_slug, _HEADING.findall(prose(page))))


def _slug(heading: str) -> str:
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")


def is_local(link: str) -> bool:
    return re.match(r"[a-z]+:", link) is None


@cache
def code_texts() -> tuple[str, ...]:
    """Return all texts in the code but docstrings and examples; values, and `%s`, are holes."""
    return tuple(text for file in _modules() for text in _texts(ast.parse(file.read_text())))


def _modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (ROOT / package).rglob("*.py")


def _texts(tree: ast.AST) -> Iterator[str]:
    quoted = {id(node.value) for node in ast.walk(tree) if _is_quotation(node)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and id(node) not in quoted:
            text = _text(node)
            if text:
                yield re.sub(r"%(\.\d)?[a-z]", HOLE, text)


def _is_quotation(node: ast.AST) -> bool:
    """Return whether a node is a docstring, or the `example` that documents an error."""
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets] == ["example"]
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.target) == "example"
    return isinstance(node, ast.Expr)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return HOLE
