"""Commits beside other writers: retries, locks, sync to disk, and a session for each table.

Formats read a commit's mark from the configuration of its session. On a local disk they do not
detect lost commits, nor sync their files.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.types import ArrayType, MapType, StructType

from shared.errors import DestinationError, Pauses, SingerSparkError, Where
from shared.errors import repeated as retried
from shared.spark.s3a import s3a_options
from shared.spark.spark_errors import explain
from shared.storage.access import StorageOptions
from shared.storage.urls import S3_SCHEMES, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from target_spark.run_settings import TargetConfig


T = TypeVar("T")

ATTEMPTS = 30
PAUSES = Pauses(longest=10.0)


class LostCommit(Exception):  # noqa: N818
    """Others have changed the table concurrently; our commit has not changed it."""


def repeated(
    work: Callable[[int], T], conflicts: re.Pattern[str], where: Where, *, shown: str
) -> T:
    """Do work, and retry it if it conflicts with other writers of the table.

    Args:
        work: Called with the number of the attempt, from 0.
        conflicts: Matches the text of conflicts, which have not changed anything.
        where: Place for errors.
        shown: Name of the table.

    Raises:
        DestinationError: It failed for another reason, or `ATTEMPTS` times.
    """

    def is_lost(error: Exception) -> bool:
        if isinstance(error, SingerSparkError | LostCommit):
            return isinstance(error, LostCommit)
        return conflicts.search(f"{type(error).__name__}: {error}") is not None

    try:
        return retried(work, is_lost, attempts=ATTEMPTS, pauses=PAUSES)
    except SingerSparkError:
        raise
    except Exception as error:
        if not is_lost(error):
            raise explain(error, where, DestinationError) from error
        raise DestinationError(
            f"{shown}: gave up after {ATTEMPTS} attempts: other writers keep committing",
            where=where,
            hint="run fewer programs that write to this table at the same time",
        ) from error


LONGEST_WAIT = 1800.0
_PAUSE = 0.05
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})


@contextmanager
def one_writer(
    folder: str | None,
    *,
    longest: float = LONGEST_WAIT,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[None]:
    """Lock a table against other programs of this machine that lock it, too.

    On a local disk a rename replaces an existing file, so that one of two concurrent versions of a
    table would be lost. Remote storages and file systems without locks are not locked.

    Args:
        folder: Folder of the table; None if only a catalog knows it.
        longest: Seconds to wait for another program.
        pause: Sleeps for some seconds.

    Raises:
        DestinationError: Another program holds the lock, or the folder cannot be written.
    """
    path = None if folder is None else local_path(folder)
    if path is None:
        yield
        return
    fd = _opened(Path(path))
    try:
        _wait(fd, path, longest, pause)
        yield
    finally:
        os.close(fd)


def _opened(table: Path) -> int:
    """Return an open hidden sibling of the table: formats may remove unknown files inside."""
    try:
        table.parent.mkdir(parents=True, exist_ok=True)
        name = f".{table.name}.commit-lock"
        return os.open(table.with_name(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise DestinationError(f"'{table}' cannot be written: {error.strerror}") from error


def _wait(fd: int, path: str, longest: float, pause: Callable[[float], object]) -> None:
    waited = 0.0
    while not _taken(fd):
        if waited >= longest:
            raise DestinationError(
                f"another program has been writing to '{path}' for {longest:.0f} s"
            )
        pause(_PAUSE)
        waited += _PAUSE


def _taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def sync_to_disk(folder: str | None) -> None:
    """Sync the file system of a table's folder.

    Neither Spark nor delta-rs syncs files, and a commit has many of them; so the whole file system
    is synced (`syncfs` on Linux, `sync` elsewhere). Object stores do not need it.

    Args:
        folder: Path or URL; None for a table that only a catalog knows.

    Raises:
        OSError: The disk failed.
    """
    path = None if folder is None else local_path(folder)
    if path is None or not os.path.isdir(path):  # noqa: PTH112
        return
    sync = _syncfs()
    if sync is None:
        os.sync()
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if sync(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


@cache
def _syncfs() -> Callable[[int], int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).syncfs
    except (AttributeError, OSError, TypeError):
        return None
    function.argtypes = [ctypes.c_int]
    function.restype = ctypes.c_int
    return function


BY_CASE = {"spark.sql.caseSensitive": "true"}
"""Configuration to read parts whose columns or fields `differs_by_case`."""


def own_session(spark: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    """Return a session with its own configuration, or the given one if that is not possible."""
    try:
        own = spark.newSession()
    except (AttributeError, NotImplementedError):  # Spark Connect
        own = spark
    for name, value in conf.items():
        own.conf.set(name, value)
    return own


def storage_conf(config: TargetConfig) -> dict[str, str]:
    """Return Spark's configuration for S3 from `storage_options`; `spark.conf` has precedence.

    Args:
        config: The settings.
    """
    if config.catalog is not None or not config.path.startswith(S3_SCHEMES):
        return {}
    result = s3a_options(StorageOptions(config.storage_options).for_url(config.path))
    own = config.spark.conf
    return {name: text for name, text in result.items() if f"spark.hadoop.{name}" not in own}


@contextmanager
def configured(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Set the configuration of a session within the block."""
    before = {name: spark.conf.get(name, None) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def differs_by_case(dtype: Any) -> bool:
    """Return whether a type has columns or fields beside each other that differ in case only."""
    if isinstance(dtype, StructType):
        names = {name.lower() for name in dtype.names}
        return len(names) < len(dtype) or any(differs_by_case(f.dataType) for f in dtype)
    if isinstance(dtype, MapType):
        return differs_by_case(dtype.keyType) or differs_by_case(dtype.valueType)
    return isinstance(dtype, ArrayType) and differs_by_case(dtype.elementType)
