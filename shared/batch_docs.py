"""Fills the tables of `docs/batch-config.md` from the table of batch settings.

`python -m shared.batch_docs` writes them; `--check` exits with 1 where they are stale.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from shared.batch_fields import BATCH, BATCH_CONFIG, COMPRESSIONS, DEFAULT_COMPRESSION, FAILURE
from shared.batch_fields import Field as Setting
from shared.units import DURATION_UNITS, SIZE_UNITS, duration_text, size_text

PAGE = Path(__file__).resolve().parents[1] / "docs" / "batch-config.md"

_BLOCK = re.compile(r"(<!-- batch:([\w-]+) -->\n).*?(<!-- /batch -->)", re.DOTALL)


def config_table() -> str:
    """Write the settings of `batch_config`."""
    rows = [
        (f"`{'.'.join(s.path[1:])}`", _allowed(s), _default(s), _program(s) + s.description)
        for s in BATCH_CONFIG
    ]
    return _table(("Setting", "Allowed", "Default", "Meaning"), rows)


def compression_table() -> str:
    """Write the compressions of each format."""
    rows = [
        (f"`{name}`", ", ".join(f"`{word}`" for word in words), f"`{DEFAULT_COMPRESSION[name]}`")
        for name, words in COMPRESSIONS.items()
    ]
    return _table(("Format", "Compressions", "Default"), rows)


def strategy_table() -> str:
    """Write the settings of `batch`."""
    return _variant_table(BATCH.fields, "Strategy")


def failure_table() -> str:
    """Write the settings of `failure`."""
    return _variant_table(FAILURE.fields, "Policy")


def duration_table() -> str:
    """Write the units of durations."""
    words: dict[int, list[str]] = {}
    for unit, count in DURATION_UNITS.items():
        words.setdefault(count, []).append(f"`{unit}`")
    rows = [(", ".join(units), duration_text(count)) for count, units in words.items()]
    return _table(("Unit", "Is"), [("none", "milliseconds"), *rows])


def size_table() -> str:
    """Write the units of sizes."""
    words: dict[int, list[str]] = {}
    for unit, count in SIZE_UNITS.items():
        words.setdefault(count, []).append(f"`{unit}`")
    rows = [(", ".join(units), f"{count:,} bytes") for count, units in words.items()]
    return _table(("Unit", "Is"), [("none", size_text(1)), *rows])


TABLES: dict[str, Callable[[], str]] = {
    "config": config_table,
    "compressions": compression_table,
    "strategies": strategy_table,
    "failure": failure_table,
    "durations": duration_table,
    "sizes": size_table,
}
"""Names of the blocks `<!-- batch:NAME -->` ... `<!-- /batch -->` of a page."""


def filled(text: str) -> str:
    """Fill the generated blocks of a page."""
    return _BLOCK.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)


def main(args: Sequence[str], page: Path = PAGE) -> int:
    """Write the page, or with `--check` only say whether it is stale.

    Returns:
        1 where `--check` found it stale, 2 for an unknown argument, else 0.
    """
    if any(arg != "--check" for arg in args):
        sys.stderr.write("usage: python -m shared.batch_docs [--check]\n")
        return 2
    text = page.read_text(encoding="utf-8")
    if filled(text) == text:
        return 0
    sys.stderr.write(f"{'stale' if args else 'written'}: {page.name}\n")
    if args:
        return 1
    page.write_text(filled(text), encoding="utf-8")
    return 0


def _variant_table(settings: Iterable[Setting], noun: str) -> str:
    rows = [
        (
            f"`{s.owner}`" if s.owner else "all",
            f"`{s.key}`",
            f"`{s.dotted}`",
            _allowed(s),
            _default(s),
            s.description,
        )
        for s in settings
    ]
    return _table((noun, "Setting", "Dotted", "Allowed", "Default", "Meaning"), rows)


def _allowed(setting: Setting) -> str:
    return re.sub(r"'([^']+)'", r"`\1`", setting.kind.allowed.split(":")[0])


def _default(setting: Setting) -> str:
    if setting.default is None:
        return ""
    text = setting.default if isinstance(setting.default, str) else json.dumps(setting.default)
    return f"`{text}`" if text else "empty"


def _program(setting: Setting) -> str:
    return f"({setting.side}-spark) " if setting.side else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, [":---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
