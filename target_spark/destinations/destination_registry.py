"""All destinations: those of this package, and those of other packages by entry points.

A package adds a destination by an entry point of the group `singer_spark.destinations`, whose name
is the format and whose value is a `Declaration`. One that cannot be used does not affect runs that
use another destination.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING

from shared.encodings import extensions
from shared.errors import SettingsError, Where
from shared.settings.kinds import schema_of, typed
from shared.spark.connect import executors_share_disk
from shared.spark.packages import LAKES
from shared.storage.urls import local_path
from target_spark.destinations.databases.database_tables import JdbcSettings
from target_spark.destinations.destination_declaration import TABLE_SETTINGS, Declaration, Supports
from target_spark.destinations.leases import folder_leases

if TYPE_CHECKING:
    from target_spark.destinations.destination import Destination, Tools
    from target_spark.run_settings import TargetConfig


def _open_files(config: TargetConfig, tools: Tools) -> Destination:
    from target_spark.destinations.files.file_destination import FileDestination, file_settings  # noqa: PLC0415

    return FileDestination(file_settings(config), tools.rewrite, folder_leases(config))


_USES = frozenset({"schema_contract", "partition_by"})
_FILES_SUPPORT = Supports(
    overwrite=True, new_columns=True, exactly_once=True, versions=True, leases=True, verify=True
)

FILE_FORMATS = tuple(
    Declaration(
        name,
        "files",
        _open_files,
        supports=_FILES_SUPPORT,
        uses=_USES,
        operate="target_spark.destinations.files.file_operations:FileOperations",
        needs_spark=lambda config: (
            "Spark makes the text of JSON tables" if config.format == "json" else ""
        ),
    )
    for name in ("parquet", "json", "csv", "orc")
)


def _delta(config: TargetConfig, tools: Tools) -> Destination:
    from target_spark.destinations.lakes.delta.delta_format import delta_destination  # noqa: PLC0415

    return delta_destination(config, tools.spark)


def _iceberg(config: TargetConfig, tools: Tools) -> Destination:
    from target_spark.destinations.lakes.iceberg.iceberg_format import iceberg_destination  # noqa: PLC0415

    return iceberg_destination(config, tools.spark)


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


_LAKES_SUPPORT = Supports(
    upsert=True,
    history=True,
    overwrite=True,
    new_columns=True,
    exactly_once=True,
    replays=True,
    versions=True,
    views=True,
    backfill=True,
    leases=True,
    verify=True,
    repair=True,
)

DELTA, ICEBERG = (
    Declaration(
        name=name,
        title=title,
        open=opened,
        places=("path", "catalog"),
        supports=_LAKES_SUPPORT,
        uses=frozenset(TABLE_SETTINGS),
        needs=(LAKES[name],),
        operate="target_spark.destinations.lakes.lake_operations:LakeOperations",
        needs_spark=needs_spark,
        notes={"views": "in a `catalog`"},
    )
    for name, title, opened, needs_spark in (
        ("delta", "Delta", _delta, _delta_needs_spark),
        ("iceberg", "Iceberg", _iceberg, lambda _: "Iceberg tables"),
    )
)


def _open_database(config: TargetConfig, tools: Tools) -> Destination:
    from target_spark.destinations.databases.database_destination import jdbc_destination  # noqa: PLC0415

    return jdbc_destination(config, tools.spark)


_LAYOUT = frozenset({"partition_by", "target_file_bytes", "compact"})
_LAKES_ONLY = frozenset({"write_audit_publish", "maintenance"})

JDBC = Declaration(
    name="jdbc",
    title="databases",
    open=_open_database,
    places=("jdbc",),
    supports=Supports(
        upsert=True,
        overwrite=True,
        new_columns=True,
        exactly_once=True,
        replays=True,
        versions=True,
        views=True,
        backfill=True,
        verify=True,
        repair=True,
        leases=True,
    ),
    block=schema_of(JdbcSettings, "Database to load into, with the format `jdbc`."),
    typed=partial(typed, JdbcSettings),
    uses=frozenset(TABLE_SETTINGS) - _LAYOUT - _LAKES_ONLY,
    ignores=_LAYOUT,
    operate="target_spark.destinations.databases.database_operations:DatabaseOperations",
    needs_spark=lambda _: "",
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

    @property
    def blocks(self) -> tuple[str, ...]:
        """Return the formats with a block of settings of their own."""
        return tuple(name for name, result in self.declarations.items() if result.block is not None)

    def get(self, name: str) -> Declaration:
        """Return a declaration.

        Raises:
            SettingsError: The format is unknown, or cannot be used.
        """
        if name in self.broken or name not in self.declarations:
            reason = self.broken.get(name, f"{name!r} is not one of {', '.join(self.declarations)}")
            raise SettingsError(reason, where=Where(setting="format"))
        return self.declarations[name]


def read_registry(settings: Container[str] = ()) -> Registry:
    """Read the declarations of this package and of all others; never fails.

    Args:
        settings: Names of settings, which cannot be names of formats.
    """

    def clash(declaration: Declaration, _: Mapping[str, Declaration]) -> str | None:
        return "a setting has its name" if declaration.name in settings else None

    ours = {declared.name: declared for declared in BUILT_IN}
    declaration = extensions.declared(extensions.DESTINATIONS, Declaration, ours, clash)
    broken = {name: "; ".join(lines) for name, lines in declaration.unusable.items()}
    return Registry(declaration.items, broken)


def capability_table(declarations: Iterable[Declaration] = BUILT_IN) -> str:
    """Return what each destination supports, as a Markdown table."""
    columns = list(declarations)
    names = [f"`{declared.name}`" for declared in columns]
    rows = [f"| | {' | '.join(names)} |", f"|:--{'|:--:' * len(names)}|"]
    for name in (item.name for item in fields(Supports)):
        cells = [_cell(declared, name) for declared in columns]
        rows.append(f"| {LABELS[name]} | {' | '.join(cells)} |")
    for setting in TABLE_SETTINGS:
        cells = ["yes" if setting in declared.uses else "" for declared in columns]
        rows.append(f"| `{setting}` | {' | '.join(cells)} |")
    return "\n".join(rows)


LABELS: Mapping[str, str] = {
    "upsert": "`load_method: upsert`",
    "history": "`load_method: history`",
    "overwrite": "`load_method: overwrite`",
    "backfill": "`--backfill`",
    "new_columns": "adds columns",
    "exactly_once": "a repeated commit adds nothing",
    "replays": "detects replays",
    "versions": "ACTIVATE_VERSION",
    "views": "`generate_view`",
    "verify": "`target-spark verify`",
    "repair": "`target-spark verify --repair`",
    "leases": "detects overlapping runs",
}
"""Words of the documentation for each name in `Supports`."""


def _cell(declared: Declaration, name: str) -> str:
    if not getattr(declared.supports, name):
        return ""
    return declared.notes.get(name, "yes")
