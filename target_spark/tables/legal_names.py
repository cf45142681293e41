"""Legal names for a table format, made from any names, without collisions. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_RECORD_METADATA = re.compile(r"_sdc_[a-z0-9_]{1,50}")
_EDGES = re.compile(r"^\W+|\W+$")
_OTHERS = re.compile(r"\W+")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_DIGEST = 8


@dataclass(frozen=True)
class NameRules:
    """The rules of a format and the settings for names.

    Attributes:
        style: `keep`, `clean` (letters, digits and `_`), `lower`, `upper` or `snake` (clean too).
        max_bytes: Longest name in bytes of UTF-8, at least 24; None means unlimited.
        forbidden: Characters that the format cannot hold.
        reserved: Names that it cannot hold, in lower case.
        ignore_case: The format treats names that differ only in case as equal.
        highest: The highest code point of a character.
    """

    style: str = "keep"
    max_bytes: int | None = None
    forbidden: str = ""
    reserved: frozenset[str] = frozenset()
    ignore_case: bool = False
    highest: int = 0x10FFFF

    def fold(self, name: str) -> str:
        """Return a key that is equal for names that the format treats as equal."""
        return name.upper().casefold() if self.ignore_case else name


def legal_names(
    names: Sequence[str], rules: NameRules, renamed: Mapping[str, str]
) -> Mapping[str, str]:
    """Return a legal and unique name for every name.

    Args:
        names: Names of a stream's columns, in any order.
        rules: The rules for legal names.
        renamed: Names assigned earlier; they are always kept, and never assigned to another name.

    Returns:
        Name → legal name. If several become equal, the one that was legal keeps it, and the others
        end in a digest of the original name: the result does not depend on the order.
    """
    return assign_names({name: name for name in names}, rules, renamed)


def assign_names(
    wishes: Mapping[str, str], rules: NameRules, renamed: Mapping[str, str]
) -> Mapping[str, str]:
    """Return legal and unique names like `legal_names`, from desired names: key → desired name."""
    supplied = {key: renamed[key] for key in wishes if key in renamed}
    taken = {rules.fold(name) for name in renamed.values()}
    wanted: dict[str, list[str]] = {}
    for key, wish in wishes.items():
        if key not in supplied:
            wanted.setdefault(rules.fold(legal_name(wish, rules)), []).append(key)
    losers: list[str] = []
    for fold, keys in wanted.items():
        ranked = sorted(keys, key=lambda key: _rank(key, legal_name(wishes[key], rules)))
        legal = legal_name(wishes[ranked[0]], rules)
        alone = len(keys) == 1 or legal == ranked[0]
        if alone and fold not in taken:
            supplied[ranked.pop(0)] = legal
        losers += ranked
    taken |= {rules.fold(name) for name in supplied.values()}
    for key in sorted(losers):
        supplied[key] = _distinct(key, legal_name(wishes[key], rules), rules, taken)
        taken.add(rules.fold(supplied[key]))
    return {key: supplied[key] for key in wishes}


def matched_names(
    names: Sequence[str],
    existing: Sequence[str],
    rules: NameRules,
    renamed: Mapping[str, str],
    *,
    ours: bool = False,
) -> Mapping[str, str]:
    """Return names like `legal_names`, matched with the existing columns of a table.

    Unassigned columns are matched with equal names first, then with names that the format treats
    as equal, then with names that become equal.

    Args:
        names: Names of a stream's columns, in any order.
        existing: Names of the table's columns.
        rules: The rules for legal names.
        renamed: As for `legal_names`.
        ours: Columns of the table without an entry in `renamed` belong to the equal names.
    """
    claimed = set(renamed.values())
    free = [name for name in existing if name not in claimed]
    if ours:
        return legal_names(names, rules, {**{name: name for name in free}, **renamed})
    results = dict(renamed)
    for find in (_equal, _folded):
        for name in sorted(set(names) - set(results), key=lambda name: _rank(name, name)):
            match = find(name, free, rules)
            if match is not None:
                results[name] = match
                free.remove(match)
    supplied = legal_names(names, rules, results)
    new = {name: _folded(supplied[name], free, rules) for name in supplied if name not in results}
    return {name: new.get(name) or legal for name, legal in supplied.items()}


def legal_name(name: str, rules: NameRules) -> str:
    """Return a legal name; legal names and columns of the record metadata are unchanged."""
    if _RECORD_METADATA.fullmatch(name):
        return name
    legal = _styled(name, rules)
    while legal.lower() in rules.reserved:
        legal += "_"
    return _shortened(legal, rules)


def legal_table_name(name: str, rules: NameRules) -> str:
    """Return a legal name of a table, schema or namespace. Different names may become equal."""
    return legal_name(name, rules)


def _equal(name: str, free: Sequence[str], _: NameRules) -> str | None:
    return name if name in free else None


def _folded(name: str, free: Sequence[str], rules: NameRules) -> str | None:
    """Return the equal name, or else one that the format treats as equal."""
    same = (other for other in free if rules.fold(other) == rules.fold(name))
    return name if name in free else next(same, None)


def _rank(key: str, legal: str) -> tuple[bool, bool, str]:
    return legal != key, key != key.lower(), key


def _styled(name: str, rules: NameRules) -> str:
    change = _STYLES[rules.style]
    legal = change(name)
    forbidden = set(rules.forbidden)
    highest = chr(rules.highest)
    legal = "".join("_" if char in forbidden or char > highest else char for char in legal)
    if rules.style != "keep" and legal[:1].isdigit():
        legal = f"_{legal}"
    return legal or "_"


def _clean(name: str) -> str:
    return _OTHERS.sub("_", _EDGES.sub("", name))


_STYLES: Mapping[str, Callable[[str], str]] = {
    "keep": lambda name: name,
    "clean": _clean,
    "lower": lambda name: _clean(name.lower()),
    "upper": lambda name: _clean(name.upper()),
    "snake": lambda name: _clean(_HUMPS.sub("_", name).lower()),
}


def _distinct(key: str, legal: str, rules: NameRules, taken: set[str]) -> str:
    digest = _digest(key, rules)
    lengths = range(_DIGEST, len(digest) + 1, _DIGEST)
    tries = (_ended(legal, f"_{digest[:length]}", rules) for length in lengths)
    return next(name for name in tries if rules.fold(name) not in taken)


def _shortened(legal: str, rules: NameRules) -> str:
    if rules.max_bytes is None or len(_bytes(legal)) <= rules.max_bytes:
        return legal
    return _ended(legal, f"_{_digest(legal, rules)[:_DIGEST]}", rules)


def _ended(legal: str, ending: str, rules: NameRules) -> str:
    """Return the name with an ending, truncated before it if needed."""
    if rules.max_bytes is None:
        return legal + ending
    room = max(rules.max_bytes - len(ending), 0)
    return _bytes(legal)[:room].decode("utf-8", "ignore") + ending


def _digest(text: str, rules: NameRules) -> str:
    digest = hashlib.sha256(_bytes(text)).hexdigest()
    return digest.upper() if rules.style == "upper" else digest


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
