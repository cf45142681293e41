"""Declarations of destinations: data, read without Spark, Arrow or the destination's code.

The settings' schema and rules, `--about`, the packages of the session and the tables in the
documentation derive from them.

A package adds a destination by an entry point of the group `singer_spark.destinations`, whose name
is the format and whose value is a `Declaration`. One that cannot be used does not affect runs that
use another destination.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, cast

from shared.encodings.encoding_format import DESTINATIONS, declared, imported
from shared.errors import SettingsError, Where
from shared.settings.kinds import schema_of, typed
from shared.spark.connect import executors_share_disk
from shared.spark.packages import LAKES, Need
from shared.storage.urls import local_path
from target_spark.destinations.databases.database_tables import JdbcSettings
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


Opener = Callable[[TargetConfig, Tools], Destination]


def _opener(place: str) -> Opener:
    """Return a function that calls another one, whose code is imported with the first call."""
    package = "target_spark.destinations."
    return lambda config, tools: cast("Opener", imported(package + place))(config, tools)  # noqa: PLW0108


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
        has_server: Whether a database server writes the rows: its parts have a sink.
        has_tasks_alone: Whether loads never pass rows through Java, which only schedules tasks.
        notes: Name in `supports` → what limits it, for the documentation.

    Raises:
        ValueError: It contradicts itself.
    """

    name: str
    title: str
    open: Opener
    places: tuple[str, ...] = ("path",)
    supports: Supports = Supports()
    block: Mapping[str, Any] | None = None
    typed: Callable[[Mapping[str, Any]], Any] = dict
    uses: frozenset[str] = frozenset()
    ignores: frozenset[str] = frozenset()
    needs: tuple[Need, ...] = ()
    operate: str = ""
    needs_spark: Callable[[TargetConfig], str] = lambda config: f"the format {config.format}"
    has_server: bool = False
    has_tasks_alone: bool = False
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


_USES = frozenset({"schema_contract", "partition_by"})
_FILES_SUPPORT = Supports(
    overwrite=True, new_columns=True, exactly_once=True, versions=True, leases=True, verify=True
)

FILE_FORMATS = tuple(
    Declaration(
        name,
        "files",
        _opener("files.file_destination:file_destination"),
        supports=_FILES_SUPPORT,
        uses=_USES,
        operate="target_spark.operate.file_operations:FileOperations",
        needs_spark=lambda config: (
            "Spark makes the text of JSON tables" if config.format == "json" else ""
        ),
        has_tasks_alone=name in {"parquet", "orc"},
    )
    for name in ("parquet", "json", "csv", "orc")
)


def _delta_needs_spark(config: TargetConfig) -> str:
    """Return why Spark must commit to Delta tables: no plain folders, or versioned rows."""
    from importlib.util import find_spec  # noqa: PLC0415

    methods = {config.load_method, *(own.get("load_method") for own in config.streams.values())}
    others = methods - {"append-only", "upsert", "overwrite", None}
    reasons = {
        "tables in a catalog": config.catalog is not None,
        "tables on remote storage": config.catalog is None and local_path(config.path) is None,
        "the package deltalake is not installed": find_spec("deltalake") is None,
        "write_audit_publish": config.write_audit_publish,
        "executors on other machines": not executors_share_disk(config.spark),
        f"load_method {', '.join(map(str, others))}": bool(others),
    }
    return next((why for why, applies in reasons.items() if applies), "")


_ALL_ABILITIES = Supports(**{ability.name: True for ability in fields(Supports)})

DELTA, ICEBERG = (
    Declaration(
        name=name,
        title=title,
        open=_opener(place),
        places=("path", "catalog"),
        supports=_ALL_ABILITIES,
        uses=frozenset(TABLE_SETTINGS),
        needs=(LAKES[name],),
        operate="target_spark.operate.lake_operations:LakeOperations",
        needs_spark=needs_spark,
        notes={"views": "in a `catalog`"},
    )
    for name, title, place, needs_spark in (
        ("delta", "Delta", "lakes.delta.delta_format:delta_destination", _delta_needs_spark),
        (
            "iceberg",
            "Iceberg",
            "lakes.iceberg.iceberg_format:iceberg_destination",
            lambda _: "Iceberg tables",
        ),
    )
)


_LAYOUT = frozenset({"partition_by", "target_file_bytes", "compact"})
_LAKES_ONLY = frozenset({"write_audit_publish", "maintenance"})

JDBC = Declaration(
    name="jdbc",
    title="databases",
    open=_opener("databases.database_destination:jdbc_destination"),
    places=("jdbc",),
    supports=replace(_ALL_ABILITIES, history=False),
    block=schema_of(JdbcSettings, "Database to load into, with the format `jdbc`."),
    typed=partial(typed, JdbcSettings),
    uses=frozenset(TABLE_SETTINGS) - _LAYOUT - _LAKES_ONLY,
    ignores=_LAYOUT,
    operate="target_spark.operate.database_operations:DatabaseOperations",
    needs_spark=lambda _: "",
    has_server=True,
    notes={"replays": "PostgreSQL"},
)


BUILT_IN = (*FILE_FORMATS, DELTA, ICEBERG, JDBC)


@dataclass(frozen=True)
class Registry:
    """The destinations that are installed.

    Attributes:
        declarations: Declarations by format.
        broken: Format → why it cannot be used; only runs that ask for it fail.
    """

    declarations: Mapping[str, Declaration] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)

    @property
    def formats(self) -> tuple[str, ...]:
        """Return all formats, unusable ones last."""
        return (
            *self.declarations,
            *(name for name in self.broken if name not in self.declarations),
        )

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """Return the formats with a block of settings of their own."""
        return tuple(name for name, result in self.declarations.items() if result.block is not None)

    def able(self, ability: str) -> tuple[str, ...]:
        """Return the formats with an ability, a name in `Supports`."""
        every = self.declarations.items()
        return tuple(name for name, one in every if getattr(one.supports, ability))

    def get(self, name: str) -> Declaration:
        """Return a declaration.

        Raises:
            SettingsError: The format is unknown, or cannot be used.
        """
        if name in self.broken or name not in self.declarations:
            reason = self.broken.get(name, f"{name!r} is not one of {', '.join(self.declarations)}")
            raise SettingsError(reason, where=Where(setting="format"))
        return self.declarations[name]


def check_format(form: str, able: Iterable[str], cannot: str, use: str) -> None:
    """Check that a command or an option is for a format; before Spark starts.

    Args:
        able: The formats that it is for.
        cannot: What the others lack; `{}` stands for the format.
        use: Names the command or option.

    Raises:
        SettingsError: It is for others.
    """
    able = tuple(able)
    if form not in able:
        hint = f"{use} is for {', '.join(able)}"
        raise SettingsError(cannot.format(form), where=Where(setting="format"), hint=hint)


def read_registry(settings: Container[str] = ()) -> Registry:
    """Read the declarations of this package and of all others; never fails.

    Names of settings cannot be names of formats.
    """

    def clash(declaration: Declaration, _: Mapping[str, Declaration]) -> str | None:
        return "a setting has its name" if declaration.name in settings else None

    ours = {declared.name: declared for declared in BUILT_IN}
    declaration = declared(DESTINATIONS, Declaration, ours, clash)
    broken = {name: "; ".join(lines) for name, lines in declaration.unusable.items()}
    return Registry(declaration.items, broken)
