"""The files of an Iceberg table and new snapshots of it, by the package `pyiceberg`."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.errors import DestinationError
from target_spark.destinations.lakes.iceberg.iceberg_metadata import (
    Metadata,
    commit,
    now_ms,
    with_snapshot,
)
from target_spark.destinations.lakes.lake_format import NeedsSparkError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile

MOST_MANIFESTS = 100
"""As Iceberg does by default, a commit merges this many manifests into one."""
_CODEC: Any = "gzip"


@dataclass(frozen=True)
class TableFiles:
    """The files of one version of a table.

    Attributes:
        base: The version.
        manifests: Its manifests, with the entries of files that are not removed.
    """

    base: Metadata
    manifests: Sequence[tuple[ManifestFile, Sequence[ManifestEntry]]]

    @property
    def data(self) -> Iterator[DataFile]:
        """Yield the data files."""
        return (entry.data_file for _, entries in self.manifests for entry in entries)


def files_of(base: Metadata) -> TableFiles:
    """Return the files of a version.

    Raises:
        NeedsSparkError: Files are of another format, or delete rows of others.
    """
    from pyiceberg.exceptions import ValidationError  # noqa: PLC0415
    from pyiceberg.manifest import (  # noqa: PLC0415
        DataFileContent,
        FileFormat,
        ManifestContent,
        read_manifest_list,
    )

    snapshot, io = base.snapshot, _io()
    if snapshot is None:
        return TableFiles(base, ())
    try:
        manifests = list(read_manifest_list(io.new_input(snapshot["manifest-list"])))
        if any(manifest.content != ManifestContent.DATA for manifest in manifests):
            raise NeedsSparkError
        found = [(manifest, manifest.fetch_manifest_entry(io)) for manifest in manifests]
    except (OSError, ValueError, LookupError, ValidationError) as error:
        raise NeedsSparkError from error
    files = TableFiles(base, found)
    if not all(
        file.content == DataFileContent.DATA and file.file_format == FileFormat.PARQUET
        for file in files.data
    ):
        raise NeedsSparkError
    return files


def commit_files(
    files: TableFiles,
    number: int,
    written: list[Path],
    removed: Collection[str],
    added: Sequence[DataFile],
    grown: int,
    properties: Mapping[str, str],
) -> None:
    """Commit a snapshot that replaces files by others.

    Args:
        files: The files of the version that it rests on.
        number: Its identifier.
        written: Gets the files that are written.
        removed: Paths of files to remove.
        added: New files.
        grown: Rows by which the table must grow; negative if it shrinks.
        properties: Properties of the snapshot.

    Raises:
        LostCommit: Others have committed since that version; nothing was done.
        NeedsSparkError: It cannot be committed on this disk; nothing was done.
        DestinationError: The manifests do not hold the rows that they must; nothing was done.
    """
    base = files.base
    before, at = base.snapshot, now_ms(base)
    parent = None if before is None else before["snapshot-id"]
    draft = _Draft(base, number, written)
    after = draft.manifests(files, set(removed), added)
    _check_rows(base, sum(_rows(manifest) for manifest in after), files, grown)
    snapshot = {
        "snapshot-id": number,
        **({} if parent is None else {"parent-snapshot-id": parent}),
        "sequence-number": int(base.content["last-sequence-number"]) + 1,
        "timestamp-ms": at,
        "manifest-list": draft.manifest_list(after, parent),
        "summary": {**_summary(files, removed, added), **properties},
        "schema-id": base.schema["schema-id"],
    }
    commit(base, with_snapshot(base, snapshot), at)


class _Draft:
    """The manifests of a snapshot that is not committed yet."""

    def __init__(self, base: Metadata, number: int, written: list[Path]) -> None:
        from pyiceberg.partitioning import PartitionSpec  # noqa: PLC0415
        from pyiceberg.schema import Schema  # noqa: PLC0415

        self._base, self._number, self._io = base, number, _io()
        self._spec = PartitionSpec(spec_id=base.content["default-spec-id"])
        self._schema = Schema.model_validate(base.schema)
        self._commit, self._written = uuid.uuid4(), written

    def manifests(
        self, files: TableFiles, removed: set[str], added: Sequence[DataFile]
    ) -> list[ManifestFile]:
        """Write what changes; return all manifests of the snapshot."""
        merges = len(files.manifests) >= MOST_MANIFESTS
        kept, rewritten = [], []
        for manifest, entries in files.manifests:
            if merges or any(entry.data_file.file_path in removed for entry in entries):
                rewritten.append(entries)
            elif entries:
                kept.append(manifest)
        groups = [[entry for entries in rewritten for entry in entries]] if merges else rewritten
        made = [self._rewritten(entries, removed) for entries in groups if entries]
        return [*([self._added(added)] if added else []), *made, *kept]

    def manifest_list(self, manifests: Sequence[ManifestFile], parent: int | None) -> str:
        """Write the list of all manifests; return its location."""
        from pyiceberg.manifest import write_manifest_list  # noqa: PLC0415

        place = self._place(f"snap-{self._number}-1-{self._commit}.avro")
        sequence = int(self._base.content["last-sequence-number"]) + 1
        output = self._io.new_output(place)
        with write_manifest_list(2, output, self._number, parent, sequence, _CODEC) as writer:
            writer.add_manifests(list(manifests))
        return place

    def _added(self, files: Sequence[DataFile]) -> ManifestFile:
        from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus  # noqa: PLC0415

        with self._writer() as writer:
            for file in files:
                status = ManifestEntryStatus.ADDED
                writer.add(ManifestEntry.from_args(status=status, data_file=file))
        made: ManifestFile = writer.to_manifest_file()
        return made

    def _rewritten(self, entries: Sequence[ManifestEntry], removed: set[str]) -> ManifestFile:
        with self._writer() as writer:
            for entry in entries:
                is_gone = entry.data_file.file_path in removed
                (writer.delete if is_gone else writer.existing)(entry)
        made: ManifestFile = writer.to_manifest_file()
        return made

    def _writer(self) -> Any:
        from pyiceberg.manifest import write_manifest  # noqa: PLC0415

        place = self._place(f"{self._commit}-m{len(self._written)}.avro")
        output = self._io.new_output(place)
        return write_manifest(2, self._spec, self._schema, output, self._number, _CODEC)

    def _place(self, name: str) -> str:
        self._written.append(self._base.path.with_name(name))
        return f"{self._base.content['location'].rstrip('/')}/metadata/{name}"


def _check_rows(base: Metadata, after: int, files: TableFiles, grown: int) -> None:
    before = sum(file.record_count for file in files.data)
    if after != before + grown:
        raise DestinationError(
            f"'{base.path.parent.parent}': a change without Spark would leave {after} rows instead "
            f"of {before + grown}; it was not committed",
            hint="set `engine` to spark, and report it",
            lasts=True,
        )


def _rows(manifest: ManifestFile) -> int:
    return (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)


def _summary(
    files: TableFiles, removed: Collection[str], added: Sequence[DataFile]
) -> dict[str, str]:
    """Return the summary of a snapshot, as Iceberg writes it."""
    gone = [file for file in files.data if file.file_path in removed]
    kept = [file for file in files.data if file.file_path not in removed]
    counts: dict[str, int] = {}
    for what, some, size in (
        ("added", added, "added-files-size"), ("deleted", gone, "removed-files-size"),
    ):  # fmt: skip
        if some:
            counts[f"{what}-data-files"] = len(some)
            counts[f"{what}-records"] = sum(file.record_count for file in some)
            counts[size] = sum(file.file_size_in_bytes for file in some)
    counts |= {
        "changed-partition-count": 1 if added or gone else 0,
        "total-data-files": len(kept) + len(added),
        "total-records": sum(file.record_count for file in (*kept, *added)),
        "total-files-size": sum(file.file_size_in_bytes for file in (*kept, *added)),
        **{f"total-{what}": 0 for what in ("delete-files", "position-deletes", "equality-deletes")},
    }
    operation = "overwrite" if gone else "append"
    return {"operation": operation, **{name: str(count) for name, count in counts.items()}}


def _io() -> Any:
    from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415

    return PyArrowFileIO()
