"""Settings of where tables lie, how they are loaded and laid out: schema, rules and typed form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from shared.settings_check import Problem, text_values

FILE_FORMATS = ("parquet", "json", "csv", "orc")
LAKE_FORMATS = ("delta", "iceberg")
FORMATS = (*FILE_FORMATS, *LAKE_FORMATS, "jdbc")
LOAD_METHODS = ("append-only", "upsert", "overwrite")
TYPE_CONFLICTS = ("fail", "suffix", "cast")
NAME_STYLES = ("keep", "clean", "lower", "upper", "snake")

NAME = {"type": "string", "minLength": 1}
FOLDER_NAME = {
    "type": "string",
    "pattern": r"^(?!\.+$)[^/\\]*$",
    "x-pattern-meaning": "a name without slashes",
}
_NAMES = {"type": "array", "items": NAME}


@dataclass(frozen=True)
class JdbcSettings:
    """A database to load into.

    Attributes:
        url: JDBC URL.
        user: Its user.
        password: Of the user.
        options: Properties of the connection.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class StreamRule:
    """Settings for the streams that a pattern names, in the place of the general ones.

    Attributes:
        pattern: Stream names, with `*`, `?` and `[...]`.
        values: Names and values of the settings.
    """

    pattern: str
    values: Mapping[str, Any]

    def applies(self, stream: str) -> bool:
        """Whether the pattern names a stream."""
        return fnmatchcase(stream, self.pattern)


_PER_STREAM: dict[str, Any] = {
    "load_method": {
        "type": "string",
        "enum": list(LOAD_METHODS),
        "default": "append-only",
        "description": "`append-only` adds rows; `upsert` replaces rows of the same key "
        "properties (Delta, Iceberg and databases); `overwrite` replaces the tables of the streams "
        "that came, at the end of the run.",
    },
    "hard_delete": {
        "type": "boolean",
        "default": False,
        "description": "Remove rows instead of marking them in `_sdc_deleted_at`: those of older "
        "versions on ACTIVATE_VERSION and, with `upsert`, those whose record is marked.",
    },
    "partition_by": {
        **_NAMES,
        "default": [],
        "description": "Columns by which new Delta and Iceberg tables are partitioned; Iceberg "
        "takes transforms, too.",
        "examples": [["country"], ["days(created_at)", "bucket(16, id)"]],
    },
    "cluster_by": {
        **_NAMES,
        "default": [],
        "description": "Columns by which rows are kept near each other: clustering in new Delta "
        "tables, the sort order of Iceberg tables, an index in databases.",
    },
    "target_file_bytes": {
        "type": "integer",
        "minimum": 1,
        "description": "Size of the data files of Delta and Iceberg tables.",
    },
    "compact": {
        "type": "boolean",
        "default": False,
        "description": "Rewrite small files of Delta and Iceberg tables after the run.",
    },
    "table_properties": {
        "type": "object",
        "additionalProperties": {"type": ["string", "number", "boolean"]},
        "default": {},
        "description": "Properties of new Delta and Iceberg tables.",
    },
}

PROPERTIES: dict[str, Any] = {
    "path": {
        **NAME,
        "description": "Folder or URL that holds the tables, each in a folder "
        "`<path>/[<default_target_schema>/]<table_prefix><stream>/`. For files always; for Delta "
        "and Iceberg this or `catalog`.",
        "examples": ["output/"],
    },
    "format": {
        "type": "string",
        "enum": list(FORMATS),
        "default": "parquet",
        "description": "Format of the files or tables; `jdbc` for a database.",
    },
    "catalog": {
        **NAME,
        "description": "Spark catalog that holds the Delta or Iceberg tables, as `spark.conf` "
        "configures it; used instead of `path`.",
        "examples": ["lake"],
    },
    "jdbc": {
        "type": "object",
        "additionalProperties": False,
        "required": ["url"],
        "description": "Database to load into, with the format `jdbc`.",
        "properties": {
            "url": {
                **NAME,
                "secret": True,
                "description": "JDBC URL of a PostgreSQL, MySQL or MariaDB database.",
                "examples": ["jdbc:postgresql://localhost:5432/warehouse"],
            },
            "user": {**NAME, "description": "Its user."},
            "password": {"type": "string", "secret": True, "description": "Of the user."},
            "options": {
                "type": "object",
                "additionalProperties": {"type": ["string", "number", "boolean"], "secret": True},
                "description": "Properties of the connection.",
                "examples": [{"sslmode": "verify-full"}],
            },
        },
    },
    "default_target_schema": {
        **FOLDER_NAME,
        "minLength": 1,
        "description": "Schema (namespace, database) of the tables; for tables by `path` a folder.",
    },
    "table_prefix": {
        **FOLDER_NAME,
        "default": "",
        "description": "Put before every table's name.",
    },
    "streams": {
        "type": "object",
        "default": {},
        "description": "Settings for streams by name or pattern; where several patterns fit, the "
        "last one that gives a setting wins.",
        "examples": [{"orders*": {"load_method": "upsert", "partition_by": ["country"]}}],
        "additionalProperties": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "table": {
                    **FOLDER_NAME,
                    "minLength": 1,
                    "description": "Name of the table; `{stream}` stands for the stream's name, "
                    "`{schema}` and `{table}` for its parts before and after the last `-`.",
                },
                "schema": {**FOLDER_NAME, "minLength": 1, "description": "As `table`."},
                "key_properties": {**_NAMES, "description": "Instead of those of the SCHEMA."},
                **_PER_STREAM,
            },
        },
    },
    **_PER_STREAM,
    "type_conflicts": {
        "type": "string",
        "enum": list(TYPE_CONFLICTS),
        "default": "fail",
        "description": "What happens where a column's type changes to one that it cannot be "
        "widened to: `fail`, a new column whose name ends in the type (`suffix`), or text "
        "(`cast`). For Delta, Iceberg and databases.",
    },
    "column_names": {
        "type": "string",
        "enum": list(NAME_STYLES),
        "default": "keep",
        "description": "How column names are made legal in Delta, Iceberg and databases: `keep` "
        "changes only what the format cannot hold; `clean` leaves letters, digits and `_`; "
        "`lower`, `upper` and `snake` change the case, too.",
    },
    "denormalized": {
        "type": "boolean",
        "default": True,
        "description": "`true`: a column for each property. `false`: the record as a whole in one "
        "column `data` (VARIANT or JSON), beside the key properties. For Delta, Iceberg and "
        "databases.",
    },
    "generate_view": {
        "type": "boolean",
        "default": False,
        "description": "With `denormalized: false`: make a view `<table>_view` with a typed column "
        "for each property.",
    },
    "adopt_files": {
        "type": "boolean",
        "default": True,
        "description": "Take Parquet files of BATCH messages over as they are where nothing in "
        "them needs to change: see docs/zero-copy.md.",
    },
}
"""Properties of the settings' JSON Schema."""


def stream_rules(values: Mapping[str, Mapping[str, Any]]) -> tuple[StreamRule, ...]:
    """The typed form of the setting `streams`."""
    return tuple(StreamRule(pattern, dict(rule)) for pattern, rule in values.items())


def jdbc_settings(block: Mapping[str, Any] | None) -> JdbcSettings | None:
    """The typed form of the setting `jdbc`."""
    if not block:
        return None
    return JdbcSettings(
        url=block["url"],
        user=block.get("user"),
        password=block.get("password"),
        options=text_values(block.get("options", {})),
    )


def place_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check that the format has the place it needs, and no other."""
    name = settings.get("format", "parquet")
    if name not in FORMATS:
        return
    if name == "jdbc":
        wanted: tuple[str, ...] = ("jdbc",)
    else:
        wanted = ("path", "catalog") if name in LAKE_FORMATS else ("path",)
    given = [key for key in ("path", "catalog", "jdbc") if key in settings]
    for key in given:
        if key not in wanted:
            yield Problem((key,), f"does not go with the format {name!r}")
    found = [key for key in wanted if key in settings]
    if not found:
        yield Problem((), f"{' or '.join(map(repr, wanted))} is a required property")
    elif len(found) > 1:
        yield Problem((wanted[1],), f"excludes {wanted[0]!r}; give one of them")


def method_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check what only tables with transactions can do."""
    if settings.get("format", "parquet") not in FILE_FORMATS:
        return
    streams = settings.get("streams")
    blocks: list[tuple[tuple[str, ...], Any]] = [((), settings)]
    if isinstance(streams, Mapping):
        blocks += [(("streams", pattern), block) for pattern, block in streams.items()]
    for path, block in blocks:
        if isinstance(block, Mapping) and block.get("load_method") == "upsert":
            text = "needs the format 'delta', 'iceberg' or 'jdbc': files cannot replace rows"
            yield Problem((*path, "load_method"), text)
        for key in (
            "partition_by",
            "cluster_by",
            "target_file_bytes",
            "compact",
            "table_properties",
        ):
            if isinstance(block, Mapping) and block.get(key):
                yield Problem((*path, key), "has no effect on files; it is for Delta and Iceberg")
    for key, default in (
        ("type_conflicts", "fail"),
        ("column_names", "keep"),
        ("denormalized", True),
    ):
        if settings.get(key, default) != default:
            yield Problem((key,), "has no effect on files; it is for Delta, Iceberg and databases")


def view_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check that a view is asked for only where there is something to view."""
    if settings.get("generate_view") is True and settings.get("denormalized", True) is True:
        yield Problem(("generate_view",), "is for 'denormalized': false")
