"""The metadata file of an Iceberg table. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.types.spark_conform import Names, Path
from tap_spark.sources.lakes.lake_log import ChangeReadMode, LoggedCommit

_FILE = re.compile(r"v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?")
_DELETE_COUNTS = ("added-delete-files", "removed-delete-files", "total-delete-files")


@dataclass(frozen=True)
class IcebergSnapshot:
    """One snapshot.

    Attributes:
        number: Its id.
        parent: Id of the snapshot before it; None for the first.
        at_micros: Time of the commit, in microseconds since the epoch.
        operation: append, overwrite, delete, replace; empty if unknown.
        summary: Counts, as texts.
        schema_id: The schema it was written with; None if unknown.
    """

    number: int
    parent: int | None
    at_micros: int
    operation: str
    summary: Mapping[str, str]
    schema_id: int | None = None

    def commit(self) -> LoggedCommit:
        """Return the snapshot as a commit; Spark reads no changes if it has delete files."""
        nothing = self.operation == "replace"
        only_new = nothing or self.operation == "append"
        total = self.summary.get("total-delete-files")
        clean = total == "0" and not any(self._count(name) for name in _DELETE_COUNTS)
        how = (
            ChangeReadMode.FEED
            if clean or nothing
            else ChangeReadMode.APPENDED
            if only_new
            else ChangeReadMode.COMPARE
        )
        rows = 0 if nothing else self._count("added-records") + self._count("deleted-records")
        return LoggedCommit(self.number, self.parent, self.at_micros, how, rows, only_new)

    @property
    def rows(self) -> int | None:
        """Return its rows; None if the summary does not tell, or files with deletes hide some."""
        if self.summary.get("total-delete-files") != "0":
            return None
        return self._count("total-records") if "total-records" in self.summary else None

    def _count(self, name: str) -> int:
        text = str(self.summary.get(name, "0"))
        return int(text) if text.isdigit() else 0


@dataclass(frozen=True)
class IcebergMetadata:
    """A table's metadata.

    Attributes:
        table_id: Its UUID; None if unknown.
        current: Id of its newest snapshot; None if it has none.
        snapshots: By id.
        identifiers: Names of the identifier fields.
        schema_id: Id of today's schema; None if unknown.
        schemas: Schemas by their id, as the format has them.
    """

    table_id: str | None
    current: int | None
    snapshots: Mapping[int, IcebergSnapshot]
    identifiers: tuple[str, ...] = ()
    schema_id: int | None = None
    schemas: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    def columns_of(self, kinds: Sequence[str]) -> dict[str, str]:
        """Return the columns of today's schema that are, or contain, one of some types.

        Args:
            kinds: Iceberg's names of the types.

        Returns:
            The type by the name of the column.
        """
        fields = self.schemas.get(self.schema_id or 0, {}).get("fields") or ()
        pairs = ((str(item["name"]), _contained(item["type"], kinds)) for item in fields)
        return {name: kind for name, kind in pairs if kind is not None}

    def chain(self, after: int) -> list[IcebergSnapshot] | None:
        """Return the snapshots after one, up to the newest; None if it is not an ancestor."""
        found: list[IcebergSnapshot] = []
        number = self.current
        while number != after:
            snapshot = self.snapshots.get(number) if number is not None else None
            if snapshot is None:
                return None
            found.append(snapshot)
            number = snapshot.parent
        return found[::-1]

    def schema_of(self, snapshot: int) -> int | None:
        """Return the id of the schema a snapshot was written with."""
        found = self.snapshots.get(snapshot)
        return found.schema_id if found is not None else None

    def names_at(self, schema_id: int | None) -> Names:
        """Return the names of today's fields in an older schema."""
        if schema_id is None or schema_id == self.schema_id:
            return {}
        old = {number: path for path, number in self._paths(schema_id).items()}
        if not old:
            return {}
        now = self._paths(self.schema_id)
        before = {path: old.get(number) for path, number in now.items()}
        return {
            path: None if was is None else was[-1]
            for path, was in before.items()
            if was is None or was[-1] != path[-1]
        }

    def stale_columns(self, schema_id: int | None, columns: Sequence[str]) -> list[str]:
        """Return columns whose rows a destination must get again, though no row changed.

        They, or fields inside them, were renamed, dropped and added again, or added with a value
        for older rows.
        """
        if schema_id is None or schema_id == self.schema_id:
            return []
        if schema_id not in self.schemas:
            return list(columns)
        old = self._paths(schema_id)
        was = {number: path for path, number in old.items()}
        now = self._paths(self.schema_id)
        filled = {number for number, _, has in self._fields(self.schema_id) if has}
        moved = {path[0] for path, number in now.items() if was.get(number, path) != path}
        new = {path: number for path, number in now.items() if number not in was}
        again = {path[0] for path, number in new.items() if path in old or number in filled}
        touched = moved | again
        return [name for name in columns if name in touched]

    def _paths(self, schema_id: int | None) -> dict[Path, int]:
        return {path: number for number, path, _ in self._fields(schema_id)}

    def _fields(self, schema_id: int | None) -> list[tuple[int, Path, bool]]:
        schema = self.schemas.get(schema_id) if schema_id is not None else None
        return list(_fields(schema, ())) if schema is not None else []


def parse_metadata(text: str | bytes) -> IcebergMetadata:
    """Read a metadata file.

    Raises:
        ValueError: It is not a metadata file.
    """
    try:
        document = json.loads(text)
        schemas = {int(each["schema-id"]): each for each in document.get("schemas") or []}
        schema_id = document.get("current-schema-id")
        if not schemas and "schema" in document:
            schema_id = int(document["schema"].get("schema-id", 0))
            schemas = {schema_id: document["schema"]}
        current = document.get("current-snapshot-id")
        found = [_snapshot(each) for each in document.get("snapshots") or []]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"the metadata file is damaged: {error!r}") from error
    ids = (schemas.get(schema_id) or {}).get("identifier-field-ids") or []
    named = {number: path for number, path, _ in _fields(schemas.get(schema_id) or {}, ())}
    return IcebergMetadata(
        document.get("table-uuid"),
        None if current in (None, -1) else int(current),
        {snapshot.number: snapshot for snapshot in found},
        _identifiers(named.get(number) for number in ids),
        schema_id,
        schemas,
    )


def newest_file(names: Sequence[str]) -> str | None:
    """Return the newest metadata file among the files of a folder; None without any."""
    numbered = [(int(match.group(1)), name) for name in names if (match := _FILE.fullmatch(name))]
    return max(numbered)[1] if numbered else None


def _identifiers(paths: Iterator[Path | None] | Any) -> tuple[str, ...]:
    found = list(paths)
    # Identifiers inside structs cannot be key properties.
    whole = all(path is not None and len(path) == 1 for path in found)
    return tuple(path[0] for path in found if path is not None) if whole else ()


def _snapshot(document: Mapping[str, Any]) -> IcebergSnapshot:
    summary = document.get("summary") or {}
    return IcebergSnapshot(
        int(document["snapshot-id"]),
        document.get("parent-snapshot-id"),
        int(document["timestamp-ms"]) * 1000,
        summary.get("operation", ""),
        summary,
        document.get("schema-id"),
    )


def _contained(node: Any, kinds: Sequence[str]) -> str | None:
    if isinstance(node, str):
        return node if node in kinds else None
    inside = [child["type"] for child in node.get("fields") or ()]
    inside += [node[part] for part in ("element", "key", "value") if part in node]
    return next((kind for child in inside if (kind := _contained(child, kinds))), None)


def _fields(node: Any, base: Path) -> Iterator[tuple[int, Path, bool]]:
    """Yield id, path and whether older rows have a value, of every field at any depth."""
    if not isinstance(node, Mapping):
        return
    for child in node.get("fields") or ():
        path = (*base, str(child["name"]))
        yield int(child["id"]), path, child.get("initial-default") is not None
        yield from _fields(child["type"], path)
    for part in ("element", "key", "value"):
        if f"{part}-id" in node:
            yield int(node[f"{part}-id"]), (*base, part), False
            yield from _fields(node[part], (*base, part))
