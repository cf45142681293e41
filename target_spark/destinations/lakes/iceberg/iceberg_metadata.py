"""Metadata files of Iceberg tables by path on a local disk, read and committed without Spark.

As Iceberg's Hadoop catalog has them: each version is a file `metadata/v<N>.metadata.json`, and
whoever makes the next one first has committed.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shared.storage.urls import local_path
from target_spark.destinations.lakes.conflicts import LostCommit
from target_spark.destinations.lakes.disk_sync import sync_to_disk
from target_spark.destinations.lakes.iceberg.iceberg_ddl import NAMES_PROPERTY
from target_spark.destinations.lakes.iceberg.iceberg_types import spark_struct
from target_spark.destinations.lakes.lake_format import NeedsSparkError
from target_spark.destinations.lakes.lake_table import LakeTable

_VERSION = re.compile(r"v(\d+)\.metadata\.json")
_FORMAT_VERSION = 2
_NO_SNAPSHOT = -1
_HINT = "version-hint.text"
_LOGGED = "write.metadata.previous-versions-max"
_KNOWN = {
    "write.distribution-mode": ("none", "hash", "range"),
    "write.format.default": ("parquet",),
    "write.parquet.compression-codec": ("zstd", "snappy", "gzip"),
    **{f"write.{what}.mode": ("copy-on-write",) for what in ("merge", "update", "delete")},
}
"""Properties of writers that are obeyed, with the values that are; None for any."""
_NUMBERS = {"write.target-file-size-bytes", _LOGGED}


@dataclass(frozen=True)
class Metadata:
    """One version of a table.

    Attributes:
        path: The metadata file.
        number: Number of the version.
        content: The file's content.
    """

    path: Path
    number: int
    content: Mapping[str, Any]

    @property
    def schema(self) -> Mapping[str, Any]:
        """Return the current columns."""
        known = {schema["schema-id"]: schema for schema in self.content["schemas"]}
        found: Mapping[str, Any] = known[self.content["current-schema-id"]]
        return found

    @property
    def snapshot(self) -> Mapping[str, Any] | None:
        """Return the current snapshot; None for a table that never had rows.

        Raises:
            KeyError: It is not among the snapshots.
        """
        current = self.content.get("current-snapshot-id")
        if current in (None, _NO_SNAPSHOT):
            return None
        known = {found["snapshot-id"]: found for found in self.content.get("snapshots", ())}
        found: Mapping[str, Any] = known[current]
        return found

    @property
    def properties(self) -> Mapping[str, str]:
        """Return the properties of the table."""
        found: Mapping[str, str] = self.content.get("properties", {})
        return found


def newest(folder: str) -> Metadata | None:
    """Return the newest version of a table; None if there is no table.

    Raises:
        NeedsSparkError: The package is missing, or the table has features that only Spark knows.
    """
    path = local_path(folder)
    # Spark replaces `${…}` in a statement, and so in the name of the folder.
    if path is None or "$" in path or find_spec("pyiceberg") is None:
        raise NeedsSparkError
    inside = Path(path) / "metadata"
    try:
        if not Path(path).exists():
            return None
        names = os.listdir(inside)  # noqa: PTH208
        numbers = [int(found[1]) for name in names if (found := _VERSION.fullmatch(name))]
        if not numbers or any(".gz" in name for name in names):
            raise NeedsSparkError
        file = inside / f"v{max(numbers)}.metadata.json"
        made = Metadata(file, max(numbers), json.loads(file.read_bytes()))
        is_plain = _is_plain(made, path)
    except (OSError, ValueError, LookupError) as error:
        raise NeedsSparkError from error
    if not is_plain:
        raise NeedsSparkError
    return made


def look_up(folder: str) -> LakeTable | None:
    """Return a table as its metadata tell; None if there is none.

    Raises:
        NeedsSparkError: See `newest`.
    """
    found = newest(folder)
    return None if found is None else table_of(found)


def table_of(found: Metadata) -> LakeTable:
    """Return a version of a table.

    Raises:
        NeedsSparkError: It has a type that only Spark knows.
    """
    properties = {**found.properties, "format-version": str(_FORMAT_VERSION)}
    names = json.loads(properties.get(NAMES_PROPERTY, "{}"))
    return LakeTable(spark_struct(found.schema["fields"]), names, properties=properties)


def with_snapshot(base: Metadata, snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the version after `base`, whose current snapshot is a new one.

    Everything else stays, also what this program does not know.
    """
    content, at, number = base.content, snapshot["timestamp-ms"], snapshot["snapshot-id"]
    refs = content.get("refs", {})
    made = {"timestamp-ms": at, "snapshot-id": number}
    return {
        **content,
        "last-sequence-number": snapshot["sequence-number"],
        "current-snapshot-id": number,
        "snapshots": [*content.get("snapshots", ()), snapshot],
        "snapshot-log": [*content.get("snapshot-log", ()), made],
        "refs": {**refs, "main": {"type": "branch", **refs.get("main", {}), "snapshot-id": number}},
    }


def now_ms(base: Metadata) -> int:
    """Return the time of a new version: clocks may differ, but versions follow each other."""
    return max(int(time.time() * 1000), int(base.content["last-updated-ms"]))


def commit(base: Metadata, content: Mapping[str, Any], at: int) -> None:
    """Make content the version after `base`.

    Args:
        base: The version that it rests on.
        content: All of it, but for the time and the log of versions.
        at: Time of the version, see `now_ms`.

    Raises:
        LostCommit: Others have made this version; nothing was done.
        NeedsSparkError: The disk lacks hard links; nothing was done.
    """
    earlier = {
        "timestamp-ms": base.content["last-updated-ms"],
        "metadata-file": f"{content['location'].rstrip('/')}/metadata/{base.path.name}",
    }
    kept = int(base.properties.get(_LOGGED, "100"))
    log = [*content.get("metadata-log", ()), earlier][-max(kept, 1) :]
    whole = {**content, "last-updated-ms": at, "metadata-log": log}
    _publish(base.path.parent, base.number + 1, whole)


def commit_first(folder: str, content: Mapping[str, Any]) -> None:
    """Make content the first version of a table; keep one that was made concurrently.

    Raises:
        NeedsSparkError: The folder has other files, or Spark must write it; nothing was done.
    """
    inside = Path(local_path(folder) or folder) / "metadata"
    made = Metadata(inside / "v1.metadata.json", 1, content)
    try:
        if not _is_plain(made, folder) or (inside.parent.exists() and any(inside.parent.iterdir())):
            raise NeedsSparkError
        inside.mkdir(parents=True, exist_ok=True)
        _publish(inside, 1, content)
    except OSError as error:
        raise NeedsSparkError from error
    except LostCommit:
        return


def _publish(folder: Path, number: int, content: Mapping[str, Any]) -> None:
    draft = folder / f"{uuid.uuid4()}.metadata.json"
    try:
        draft.write_text(json.dumps(content), encoding="utf-8")
        # A table must not name files that a power failure takes away.
        sync_to_disk(str(folder))
        os.link(draft, folder / f"v{number}.metadata.json")
    except FileExistsError as error:
        raise LostCommit from error
    except OSError as error:
        raise NeedsSparkError from error
    finally:
        with suppress(OSError):
            draft.unlink()
    _hint(folder, number)


@contextmanager
def written(base: Metadata, snapshot: int) -> Iterator[list[Path]]:
    """Yield a list for the files of a snapshot to commit; remove them if it was not committed.

    Args:
        base: The version that it rests on.
        snapshot: Its identifier.
    """
    files: list[Path] = []
    try:
        yield files
    except BaseException:
        # Whatever has failed may have failed after the commit.
        with suppress(OSError):
            if not _has_later(base, str(snapshot).encode()):
                for path in files:
                    path.unlink(missing_ok=True)
        raise


def _has_later(base: Metadata, text: bytes) -> bool:
    """Return whether a version after `base` has a text."""
    paths = ((path, _VERSION.fullmatch(path.name)) for path in base.path.parent.iterdir())
    later = (path for path, found in paths if found and int(found[1]) > base.number)
    return any(text in path.read_bytes() for path in later)


def _hint(folder: Path, number: int) -> None:
    """Tell readers where to begin to look for the newest version; they do so without it, too."""
    with suppress(OSError):
        draft = folder / f"{uuid.uuid4()}-{_HINT}"
        draft.write_text(str(number), encoding="ascii")
        # Hadoop's checksum of the old one.
        (folder / f".{_HINT}.crc").unlink(missing_ok=True)
        draft.replace(folder / _HINT)


def _is_plain(found: Metadata, folder: str) -> bool:
    """Return whether a table is one without partitions, order and features, in this folder."""
    content = found.content
    fields: Sequence[Any] = [
        field for name in ("partition-specs", "sort-orders") for one in content[name]
        for field in one["fields"]
    ]  # fmt: skip
    current = found.snapshot
    return (
        content["format-version"] == _FORMAT_VERSION
        and (current is None or "manifest-list" in current)
        and not fields
        and local_path(content["location"].rstrip("/")) == folder.rstrip("/")
        and all(_is_known(name, text) for name, text in found.properties.items())
    )


def _is_known(name: str, text: str) -> bool:
    if not name.startswith(("write.", "encryption.")):
        return True
    return name in _NUMBERS or text in _KNOWN.get(name, ())
