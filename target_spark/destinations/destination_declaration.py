"""The declaration of a destination: data, read without Spark, Arrow or the destination's code.

The settings' schema and rules, `--about`, the packages of the session and the tables in the
documentation derive from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shared.spark.packages import Need
    from target_spark.destinations.destination import Destination, Tools
    from target_spark.run_settings import TargetConfig

TABLE_SETTINGS = (
    "upsert_order_by",
    "partition_by",
    "cluster_by",
    "target_file_bytes",
    "compact",
    "table_properties",
    "schema_contract",
    "type_conflicts",
    "column_names",
    "denormalized",
    "write_audit_publish",
    "maintenance",
)
"""Settings of tables that only some destinations use, in the order of the documentation."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Supports:
    """The capabilities of a destination; `target_spark.testing` checks them.

    Attributes:
        upsert: `load_method: upsert` replaces rows of the same key.
        history: `load_method: history` keeps each version of a row.
        overwrite: `load_method: overwrite` replaces the table at the end of the run.
        new_columns: A SCHEMA with further properties adds columns to a table.
        exactly_once: A flush whose commit is repeated has its rows once.
        replays: It can keep notes, so that replayed records of a killed run are detected.
        versions: ACTIVATE_VERSION removes or marks rows.
        views: `generate_view` makes views.
        backfill: `--backfill` replaces a range of a table in one step.
        verify: `target-spark verify` compares tables with the source.
        repair: `target-spark verify --repair` changes the rows that differ.
        leases: `overlapping_runs` detects another run that loads the same stream.
    """

    upsert: bool = False
    history: bool = False
    overwrite: bool = False
    new_columns: bool = False
    exactly_once: bool = False
    replays: bool = False
    versions: bool = False
    views: bool = False
    backfill: bool = False
    leases: bool = False
    verify: bool = False
    repair: bool = False


def _always(config: TargetConfig) -> str:
    return f"the format {config.format}"


@dataclass(frozen=True)
class Declaration:
    """One destination.

    Attributes:
        name: Value of the setting `format`; a lower-case word. The entry point has the same name.
        title: What it loads into, for messages and tables.
        open: Makes the destination; imports its code. Called once in a run.
        places: Settings of which exactly one must be given: `path`, `catalog`, or the format's name
            for its own block of settings.
        supports: What it can do.
        block: JSON Schema of the destination's own block of settings, which has the format's name;
            None for none. Mark secrets by `"secret": True`.
        typed: Turns the block into what `TargetConfig.block` holds; is given defaults, too.
        uses: Which of `TABLE_SETTINGS` have an effect.
        ignores: Which of them are accepted without an effect; the rest are rejected.
        needs: What the Spark session needs: packages, and settings that go with them.
        operate: Place (`package.module:name`) of its `Operations`: `verify`, and those of
            `write_audit_publish`; empty if it only loads. Imported only if a run needs one.
        needs_spark: Returns why even a small load needs Spark, by the settings; else empty.
        notes: Name in `supports` → what limits it, for the documentation.

    Raises:
        ValueError: It contradicts itself.
    """

    name: str
    title: str
    open: Callable[[TargetConfig, Tools], Destination]
    places: tuple[str, ...] = ("path",)
    supports: Supports = Supports()
    block: Mapping[str, Any] | None = None
    typed: Callable[[Mapping[str, Any]], Any] = dict
    uses: frozenset[str] = frozenset()
    ignores: frozenset[str] = frozenset()
    needs: tuple[Need, ...] = ()
    operate: str = ""
    needs_spark: Callable[[TargetConfig], str] = _always
    notes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ValueError(f"destination '{self.name}': {problem}")


def _problems(declaration: Declaration) -> Iterator[str]:
    if not _NAME.fullmatch(declaration.name):
        yield "'name' must be a lower-case word"
    unknown = (declaration.uses | declaration.ignores) - set(TABLE_SETTINGS)
    if unknown:
        yield f"'{min(unknown)}' is not one of the table settings"
    own = {declaration.name} if declaration.block is not None else set()
    if not declaration.places or not set(declaration.places) <= {"path", "catalog"} | own:
        yield "'places' must be 'path', 'catalog' or the name of its block"
    if declaration.supports.verify and not declaration.operate:
        yield "'supports.verify' needs 'operate'"
