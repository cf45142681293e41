"""The contract of a table: what of its schema may change."""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import SettingsError, Where
from shared.settings.kinds import one_of, setting

EVOLVE, FREEZE, DISCARD = CHOICES = ("evolve", "freeze", "discard")


@dataclass(frozen=True)
class SchemaContract:
    """What happens if a stream does not fit its table."""

    tables: str = setting(
        one_of(CHOICES),
        "A stream without a table: create it (`evolve`), end with an error (`freeze`), or ignore "
        "the stream (`discard`).",
        default=EVOLVE,
    )
    columns: str = setting(
        one_of(CHOICES),
        "A column or field that an existing table lacks: add it (`evolve`), end with an error "
        "(`freeze`), or leave it out (`discard`). Not for `overwrite`.",
        default=EVOLVE,
    )
    types: str = setting(
        one_of(CHOICES),
        "A column whose type in the table does not hold that of the stream: widen it or do what "
        "`type_conflicts` says (`evolve`), end with an error (`freeze`), or store null for values "
        "that the column cannot hold exactly (`discard`; Delta and Iceberg). Not for `overwrite`.",
        default=EVOLVE,
    )
    rules: str = setting(
        one_of((FREEZE, EVOLVE)),
        "What a table or file of another program has beside rows and columns (NOT NULL, keys, "
        "protocol version, features, the file itself), if the stream's rows need it to change: end "
        "with an error or reject the row (`freeze`), or change it (`evolve`).",
        default=FREEZE,
    )


def rules_error(stream: str, text: str, hint: str) -> SettingsError:
    """Return the error for a change of what is not ours.

    Args:
        stream: The stream.
        text: What would change.
        hint: Another remedy.
    """
    return SettingsError(
        text,
        where=Where(stream=stream, setting="schema_contract.rules"),
        hint=f"set it to `evolve` to allow that, or {hint}",
    )


def contract_error(stream: str, part: str, text: str) -> SettingsError:
    """Return the error for a change that a contract forbids.

    Args:
        stream: The stream.
        part: `columns` or `types`.
        text: What would change.
    """
    return SettingsError(
        f"{text}, and must not change",
        where=Where(stream=stream, setting=f"schema_contract.{part}"),
        hint="change the table or the stream, or set the contract to `evolve`",
    )
