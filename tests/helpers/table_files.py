"""Checks of the files of Delta and Iceberg tables on a local disk, for tests of crashes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest


def check_data_files(root: Path) -> int:
    """Check every table below a folder: no data file is referenced twice, and each one is there.

    Nor may two files of a table be one under two names, or a file have been added by two commits.

    Args:
        root: Folder of the tables, at any depth.

    Returns:
        How many data files the newest versions of the tables have.
    """
    count = 0
    for log in root.rglob("_delta_log"):
        count += _checked(log.parent, _delta_files(log))
    for metadata in root.rglob("metadata"):
        if any(metadata.glob("v*.metadata.json")):
            count += _checked(metadata.parent, _iceberg_files(metadata))
    return count


def _checked(table: Path, files: Iterable[Path]) -> int:
    actual = list(files)
    assert _repeated(actual) == [], table
    assert [path for path in actual if not path.is_file()] == [], table
    assert _repeated(path.stat().st_ino for path in actual) == [], table
    return len(actual)


def _repeated(values: Iterable[Any]) -> list[Any]:
    return [value for value, count in Counter(values).items() if count > 1]


def _delta_files(log: Path) -> Iterator[Path]:
    """Yield the data files of the newest version, from all commits in their order.

    A file with deleted rows is added again with its deletion vector, and removed without it.
    """
    live: Counter[str] = Counter()
    ever: set[str] = set()
    for commit in sorted(path for path in log.glob("*.json") if path.stem.isdigit()):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        removed = [action["remove"]["path"] for action in actions if "remove" in action]
        added = [action["add"] for action in actions if "add" in action]
        live.subtract(removed)
        for add in added:
            path = add["path"]
            assert path not in ever or path in removed or not add["dataChange"], (commit, path)
            ever.add(path)
            live[path] += 1
    assert min(live.values(), default=0) >= 0, log
    for path, count in live.items():
        yield from [log.parent / unquote(path)] * count


def _iceberg_files(metadata: Path) -> Iterator[Path]:
    """Yield the current snapshot's data files; check the files that any snapshot has added."""
    pyiceberg = pytest.importorskip("pyiceberg.table")
    newest = max(metadata.glob("v*.metadata.json"), key=lambda p: int(p.name[1:].partition(".")[0]))
    table = pyiceberg.StaticTable.from_metadata(str(newest))
    added: set[tuple[str, int]] = set()
    for snapshot in table.metadata.snapshots:
        live = [
            entry
            for manifest in snapshot.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        ]
        paths = [entry.data_file.file_path for entry in live]
        assert _repeated(paths) == [], (metadata, snapshot.snapshot_id)
        added |= {(entry.data_file.file_path, entry.snapshot_id) for entry in live}
        if snapshot.snapshot_id == table.metadata.current_snapshot_id:
            yield from (Path(unquote(urlsplit(path).path)) for path in paths)
    assert _repeated(path for path, _ in added) == [], metadata
