"""Parts that become files of a Delta table unchanged, by the package `deltalake`.

Spark would read and write them once more. Only for tables on a local disk whose protocol does not
require features that these files lack. Commits carry our marks, are made once, and are left to
Spark if the package cannot make them.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import compute
from pyspark.sql.types import StructType

from shared.formats.arrow_types import as_nullable, spark_to_arrow
from shared.formats.columnar_encoding import column_facts
from shared.storage.access import make_durable
from shared.storage.urls import local_path
from target_spark.core.load_plans import Part
from target_spark.destinations.lakes.lake_format import NeedsSparkError
from target_spark.destinations.lakes.lake_sql import NAMES_PROPERTY, KeyRange
from target_spark.destinations.lakes.lake_table import LakeTable, LostCommit
from target_spark.tables.table_changes import TableChange

if TYPE_CHECKING:
    from deltalake import DeltaTable


Transactions = Mapping[str, int]
"""Application → version of a commit: at most one entry."""


def commit_arguments(
    metadata: str, transactions: Transactions = MappingProxyType({}), *, retries: int | None = 0
) -> dict[str, Any]:
    """Return the arguments that every committing method of the package takes.

    `retries` follow commits of others that do not conflict; None for the package's.
    """
    import deltalake  # noqa: PLC0415

    at = int(time.time() * 1000)
    created = [deltalake.Transaction(*one, at) for one in transactions.items()]
    # The package would delete old log files, of which Spark's retention settings decide.
    hooks = deltalake.PostCommitHookProperties(cleanup_expired_logs=False)
    return {
        "commit_properties": deltalake.CommitProperties(
            custom_metadata={"userMetadata": metadata},
            app_transactions=created or None,
            max_commit_retries=retries,
        ),
        "post_commithook_properties": hooks,
    }


def has_transaction(table: DeltaTable, transactions: Transactions) -> bool:
    """Return whether a table has the transaction of a commit, or a later one of its application."""
    # Versions of an application only rise (Delta protocol, "Transaction Identifiers"), so a rerun
    # of an earlier flush is done, too.
    return any((table.transaction_version(app) or -1) >= at for app, at in transactions.items())


@contextmanager
def left_to_spark(*others: type[Exception]) -> Iterator[None]:
    """Raise NeedsSparkError for errors of the package, save a lost commit, and for `others`."""
    from deltalake.exceptions import CommitFailedError, DeltaError  # noqa: PLC0415

    missing: tuple[type[Exception], ...] = (DeltaError, *others)
    try:
        yield
    except CommitFailedError:
        raise
    except missing as error:
        raise NeedsSparkError from error


def check_unchanged(opened: DeltaTable, now: LakeTable) -> None:
    """Raise LostCommit if others have changed columns or rules of a table since it was `now`.

    Files that are written by `now` would lack the values of a column that came since.
    """
    structs = StructType.fromJson(json.loads(opened.schema().to_json())), now.struct
    new, old = ({f.name: spark_to_arrow(f.dataType) for f in struct} for struct in structs)
    strict, kept = ({f.name for f in struct if not f.nullable} for struct in structs)
    metadata = opened.metadata()
    rules = {n: t for n, t in metadata.configuration.items() if n.startswith("delta.")}
    is_same = new == old and strict <= kept and rules.items() <= now.properties.items()
    # `now` is a plain table, which has no partitions.
    if not is_same or metadata.partition_columns:
        raise LostCommit


_FEATURE = "delta.feature."
_SUPPORTED_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
# Of a table by writer version, 2 asks for append-only and invariants alone; 7 lists its features
# (Delta protocol, "Table Features"). What is not listed here may ask for more than plain files.
_PLAIN_WRITER, _FEATURE_WRITER = 2, 7
_INDEXED = 32
_LONGEST_TEXT = 64


def look_up(folder: str) -> LakeTable | None:
    """Return a table as its log tells; None if there is none.

    Raises:
        NeedsSparkError: The package is missing, or does not support what the table needs.
    """
    path = package_path(folder)
    if not (path / "_delta_log").exists():
        return None
    from deltalake import DeltaTable  # noqa: PLC0415

    with left_to_spark(OSError, ValueError):
        opened = DeltaTable(str(path))
        protocol, metadata = opened.protocol(), opened.metadata()
        struct = StructType.fromJson(json.loads(opened.schema().to_json()))
        size = _bytes_of(opened)
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    # In the spelling of Spark's SHOW TBLPROPERTIES, so that one reading serves both engines.
    properties = {
        **metadata.configuration,
        "delta.minWriterVersion": str(protocol.min_writer_version),
        **{f"{_FEATURE}{name}": "supported" for name in features},
    }
    if not _plain_protocol(properties):
        raise NeedsSparkError
    names = json.loads(properties.get(NAMES_PROPERTY, "{}"))
    return LakeTable(struct, names, tuple(metadata.partition_columns), properties, size)


def lowest(folder: str, column: str) -> int | None:
    """Return the least number in a column of a table, by the statistics; None for no rows.

    Raises:
        NeedsSparkError: A file has no statistics of the column.
    """
    from deltalake import DeltaTable  # noqa: PLC0415

    with left_to_spark(OSError, ValueError):
        files = pa.table(DeltaTable(str(package_path(folder))).get_add_actions(flatten=True))
    name = f"min.{column}"
    if not files.num_rows:
        return None
    if name not in files.column_names or files[name].null_count:
        raise NeedsSparkError
    return int(compute.min(files[name]).as_py())


def package_path(folder: str) -> Path:
    """Return a local folder that the package can use.

    Raises:
        NeedsSparkError: It cannot.
    """
    path = local_path(folder)
    # The package decodes %3A in a path, and takes a backslash for a slash.
    is_other = unquote(folder) != folder or "\\" in folder
    if path is None or is_other or find_spec("deltalake") is None:
        raise NeedsSparkError
    return Path(path)


def is_plain_table(now: LakeTable) -> bool:
    """Return whether the package can write to a table: without partitions and features."""
    if now.partitions:
        return False
    # A column may have rules that only Spark keeps: a length, an invariant, NOT NULL inside of it.
    has_rules = any(
        not (field.metadata or {}).keys() <= {"comment"}
        or spark_to_arrow(field.dataType) != spark_to_arrow(as_nullable(field.dataType))
        for field in now.struct
    )
    return _plain_protocol(now.properties) and not has_rules


def is_append_only(now: LakeTable) -> bool:
    """Return whether no rows may leave a table."""
    return now.properties.get("delta.appendOnly", "").lower() == "true"


def register(
    folder: str,
    parts: Sequence[Part],
    now: LakeTable,
    metadata: str,
    transactions: Transactions,
    keys: Sequence[KeyRange] = (),
    *,
    replaces: bool = False,
) -> int | None:
    """Link parts into the table's folder and commit them.

    Args:
        parts: Parts on the same disk.
        metadata: That of the commit.
        keys: Keys of the parts, if the table must not hold any of them; empty if it may.
        replaces: Whether all other files leave the table.

    Returns:
        The rows in their footers if the table has them now, or already has this transaction. None
        if nothing was done: the files are on another disk, or have a null in a NOT NULL column, or
        the table may hold one of the keys, or the package does not support the table's protocol.

    Raises:
        NeedsSparkError: The package cannot use the folder.
        LostCommit: The table has other columns or rules by now.
        deltalake.exceptions.DeltaError: The commit failed.
    """
    table = package_path(folder)
    from deltalake import DeltaTable  # noqa: PLC0415
    from deltalake.exceptions import DeltaProtocolError  # noqa: PLC0415
    from deltalake.transaction import AddAction  # noqa: PLC0415

    # 1. Refuse what Spark's own write would refuse: the footers count nulls of each column.
    results = [(part, file_stats(part.url)) for part in parts]
    strict = {field.name for field in now.struct if not field.nullable}
    if strict and any(has_nulls(stats, strict) for _, stats in results):
        return None
    rows = sum(int(stats["numRecords"]) for _, stats in results)
    opened = DeltaTable(str(table))
    if has_transaction(opened, transactions):
        return rows
    check_unchanged(opened, now)
    # 2. An upsert whose keys are all new is an append: no row of the table changes.
    if keys and not _has_none(opened, keys):
        return None
    # 3. A link costs no copy, and the staged file may go as soon as the log names the link. Until
    #    then no reader sees it.
    names: list[str] = []
    before = opened.version()
    try:
        for number, (part, _) in enumerate(results):
            names.append(f"part-{number:05d}-{uuid.uuid4()}.parquet")
            os.link(local_path(part.url) or part.url, table / names[-1])
        make_durable(str(table))
        at = int(time.time() * 1000)
        actions = [
            AddAction(name, part.size, {}, at, True, json.dumps(stats))
            for name, (part, stats) in zip(names, results, strict=True)
        ]
        opened.create_write_transaction(
            actions,  # type: ignore[arg-type]
            "overwrite" if replaces else "append",
            opened.schema(),
            [],
            # 4. Commit, at the version after the one whose bounds were read.
            # Appends do not conflict with each other, but another one may bring the same keys.
            **commit_arguments(metadata, transactions, retries=0 if keys or replaces else None),
        )
    except BaseException as error:
        if is_committed(table, before, names):
            return rows  # What has failed comes after a commit: a checkpoint.
        remove_files(table, names)
        if isinstance(error, OSError | DeltaProtocolError):
            return None
        raise
    return rows


def table_size(folder: str) -> int | None:
    """Return the bytes of a table's files.

    Raises:
        NeedsSparkError: The package cannot tell.
    """
    path = package_path(folder)
    from deltalake import DeltaTable  # noqa: PLC0415

    with left_to_spark(OSError, ValueError):
        return _bytes_of(DeltaTable(str(path)))


def _bytes_of(table: DeltaTable) -> int:
    files = pa.table(table.get_add_actions())
    return int(compute.sum(files["size_bytes"], min_count=0).as_py())


def _has_none(table: DeltaTable, keys: Sequence[KeyRange]) -> bool:
    """Return whether the statistics of a table's files show that it has no row with the keys."""
    files = pa.table(table.get_add_actions(flatten=True))
    return any(compute.all(apart(files, key), min_count=0).as_py() for key in keys)


def apart(files: pa.Table, key: KeyRange) -> pa.Array:
    """Return for each file whether its statistics show all values of a column apart from a flush's.

    They are all below, or all above them.
    """
    low, high = f"min.{key.column}", f"max.{key.column}"
    # Delta writes exact bounds for these types alone. With a dot, it may be another column.
    is_exact = not key.nulls and type(key.first) in (int, str, dt.date) and "." not in key.column
    if not is_exact or not {low, high} <= set(files.column_names):
        return pa.repeat(False, files.num_rows)
    above, below = compute.greater(files[low], key.last), compute.less(files[high], key.first)
    return compute.fill_null(compute.or_(above, below), False).combine_chunks()


def file_stats(url: str) -> dict[str, Any]:
    """Return Delta's statistics of a Parquet file: rows; bounds and nulls of the first columns."""
    from pyarrow import parquet  # noqa: PLC0415

    footer = parquet.read_metadata(local_path(url) or url)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    stats: dict[str, Any] = {"numRecords": footer.num_rows}
    stats |= {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for number in range(footer.num_columns):
        column = footer.schema.column(number)
        # Bounds of nested columns have another form; Delta reads none as "unknown".
        if column.path != column.name:
            continue
        facts = column_facts([group.column(number).statistics for group in groups])
        if facts is None:
            continue
        stats["nullCount"][column.name], first, last = facts[0], *map(_written, facts[1:])
        if number < _INDEXED and first is not None and last is not None:
            stats["minValues"][column.name], stats["maxValues"][column.name] = first, last
    return stats


def has_nulls(stats: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Return whether a file of these statistics may have a null in one of some columns."""
    return any(stats["nullCount"].get(name) != 0 for name in names)


def _written(value: Any) -> int | str | None:
    """Return a bound as Delta writes it; None for types whose bounds are omitted."""
    if isinstance(value, bool):
        return None
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"{text}Z" if value.tzinfo is not None else text
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else None
    return value if isinstance(value, int) else None


def _plain_protocol(properties: Mapping[str, str]) -> bool:
    if any(name.startswith("delta.constraints.") for name in properties):
        return False
    version = int(properties.get("delta.minWriterVersion", "99"))
    if version == _FEATURE_WRITER:
        features = {name[len(_FEATURE) :] for name in properties if name.startswith(_FEATURE)}
        return features <= _SUPPORTED_FEATURES
    return version <= _PLAIN_WRITER


def is_committed(table: Path, before: int, names: Sequence[str]) -> bool:
    """Return whether the log names the files in a commit after version `before`."""
    name = names[0].encode() if names else None
    log = table / "_delta_log"
    later = (path for path in log.glob("*.json") if path.stem.isdigit() and int(path.stem) > before)
    return name is not None and any(name in path.read_bytes() for path in later)


def remove_files(table: Path, names: Sequence[str]) -> None:
    """Remove files that no commit names."""
    for name in names:
        with suppress(OSError):
            (table / name).unlink()


def same_columns(change: TableChange, struct: StructType) -> bool:
    """Return whether parts have the table's names and types; variants are text in parts."""
    supplied = {item.source: item for item in change.projection if item.source is not None}
    return supplied.keys() == set(struct.names) and all(
        item.how == "as is"
        and item.target == name
        and not item.names
        and as_nullable(item.dtype) == as_nullable(struct[name].dataType)
        and "variant" not in item.dtype.simpleString()
        for name, item in supplied.items()
    )
