"""Connect to a Spark Connect server, perhaps to that of this user, which stays between runs.

A process of its own holds the user's server. Its record, which only its user can read, tells others
where it is; a lock on the record tells whether it runs. By both, a program knows whether Spark's
executors see its files.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.errors import SettingsError, SparkLostError, SparkStartError, Where, first_line
from shared.spark.conf import SQL_DEFAULTS, SparkSettings
from shared.spark.jvm import archive_folder
from shared.spark.spark_release import installed, release_line, too_old
from shared.storage.owned_folders import is_locked, is_trusted, process_owner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DEFAULT_PORT = 15002
DEFAULT_IDLE_MINUTES = 30.0


@dataclass(frozen=True)
class ServerRecord:
    """A server that runs.

    Attributes:
        pid: The process that holds it.
        port: Where it listens, on loopback.
        token: What its clients must send.
        files: What files it and its executors see; None if executors run elsewhere.
    """

    pid: int
    port: int
    token: str
    files: str | None = None

    @property
    def url(self) -> str:
        """Return what `spark.remote` must be."""
        return f"sc://localhost:{self.port}"


def running_server(environ: Mapping[str, str]) -> ServerRecord | None:
    """Return the server of this user; None if none runs."""
    path = record_path(environ)
    if path is None or not is_trusted(path) or not is_locked(path):
        return None
    text = path.read_text(encoding="utf-8")
    return ServerRecord(**json.loads(text)) if text else None


def own_server(url: str, environ: Mapping[str, str]) -> ServerRecord | None:
    """Return the server of this user if it is at this URL."""
    record = running_server(environ)
    return record if record is not None and url.removesuffix("/") == record.url else None


def visible_files() -> str | None:
    """Identify the files that this process sees; None if the system does not tell.

    Processes of one machine see others in a container, or with a temporary folder of their own.
    """
    try:
        mounts = os.readlink("/proc/self/ns/mnt")  # noqa: PTH115
    except OSError:
        return None
    root = Path("/").stat()
    return f"{mounts} {root.st_dev}:{root.st_ino}"


def record_path(environ: Mapping[str, str]) -> Path | None:
    """Return the place of the record; None if caches are turned off.

    Machines and containers that share the folder have one each: a number of a process or a port
    means nothing in others, though the lock is seen there.
    """
    folder = archive_folder(environ)
    name = re.sub(r"[^\w-]", "", "-".join(["record", *process_owner()["place"][1:]]))
    return None if folder is None else folder / "server" / f"{name}.json"


CONNECT_SECONDS = 10.0
CONNECT_FLAG = "SPARK_CONNECT_MODE_ENABLED"
CONNECT_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105
_PASSING = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED"})
"""Status codes of a server that may take us later."""
_STATUS = re.compile(r"StatusCode\.(\w+)")
_PYTHON = "spark.pyspark.python"
_SENT = {"archive": "spark.archives", "pyfile": "spark.submit.pyFiles", "file": "spark.files"}
"""Settings with files to send, by the keyword of `addArtifacts`."""
_log = logging.getLogger(__name__)


def require_connect() -> None:
    """Check that what Spark Connect needs is installed.

    Raises:
        SettingsError: It is not.
    """
    try:
        import pyspark.sql.connect.session  # noqa: F401, PLC0415
    except Exception as error:
        raise SettingsError(
            f"Spark Connect needs packages that are not installed: {first_line(error)}",
            where=Where(setting="spark.remote"),
            hint="run `pip install 'singer-spark[connect]'`",
        ) from error


def check_serves_connect() -> None:
    """Check that the installed release has a Spark Connect server that others cannot use.

    Raises:
        SettingsError: It has none.
    """
    if not installed().serves_connect:
        raise too_old("a Spark Connect server of our own", "4.0")


def connect(url: str, settings: SparkSettings) -> SparkSession:
    """Connect to a server.

    Args:
        url: `sc://host:port`, with parameters. That of `spark-server` needs no token: its record
            has it.

    Raises:
        SparkStartError: The server does not answer, or rejects us.
    """
    import grpc  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql.connect.client import core  # noqa: PLC0415
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415

    server = own_server(url, os.environ)
    if server is not None:
        os.environ.setdefault(CONNECT_TOKEN, server.token)

    # Asked first with a limit of our own: Spark's client would try again for many minutes.
    builder: Any = getattr(core, "DefaultChannelBuilder", core.ChannelBuilder)  # in Spark 3.5
    with contextlib.closing(builder(url).toChannel()) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=CONNECT_SECONDS)
        except grpc.FutureTimeoutError:
            raise SparkLostError(
                f"no Spark Connect server answers at {url.partition(';')[0]}",
                where=Where(setting="spark.remote"),
                hint="check host, port and network",
            ) from None
    os.environ[CONNECT_FLAG] = "1"
    try:
        session = SparkSession.builder.remote(url).create()
        check_release(url, session.version)
        configure(session.conf, settings.conf)
        for keyword, paths in artifacts(settings).items():
            session.addArtifacts(*paths, **{keyword: True} if keyword else {})
    except (grpc.RpcError, PySparkException) as error:
        code = _STATUS.search(str(error))
        if code is None:
            raise
        kind = SparkLostError if code[1] in _PASSING else SparkStartError
        raise kind(
            f"the Spark Connect server at {url.partition(';')[0]} rejects us: {code[1]}",
            where=Where(setting="spark.remote"),
            hint=f"check its token ({CONNECT_TOKEN}, or ';token=' in the URL)",
        ) from error
    return session  # type: ignore[return-value]


def check_release(url: str, version: str) -> None:
    """Check that a server is of the release of the installed PySpark.

    Raises:
        SparkStartError: It is of another one: its Python workers cannot run our functions.
    """
    line, own = release_line(version), installed().line
    if line != own:
        raise SparkStartError(
            f"the Spark Connect server at {url.partition(';')[0]} has Spark {version}, which does "
            f"not fit PySpark {own}, which is installed",
            where=Where(setting="spark.remote"),
            hint=f"run `pip install 'pyspark=={line}.*'`",
        )


def configure(session: Any, conf: Mapping[str, str]) -> None:
    """Set what a session takes; log the names of what it does not.

    Args:
        session: `SparkSession.conf`, classic or Connect.

    Raises:
        PySparkException: A value is wrong, or the server is gone.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415

    refused = set()
    for key, value in session_values(conf).items():
        is_listed = session.isModifiable(key)
        if not is_listed and key in SQL_DEFAULTS:
            continue
        try:
            session.set(key, value)
        except PySparkException as error:
            # Spark takes also those of catalogs and of Hadoop, which it does not list.
            if is_listed or _STATUS.search(str(error)):
                raise
            refused.add(key)
    if refused := refused - {_PYTHON, *_SENT.values()}:
        names = ", ".join(sorted(refused))
        _log.info("the Spark Connect server does not take these settings of spark.conf: %s", names)


def session_values(conf: Mapping[str, str]) -> dict[str, str]:
    """Return what to set in a session, in which Hadoop's settings have their own names."""
    own = {name.removeprefix("spark.hadoop."): text for name, text in conf.items()}
    values = {**SQL_DEFAULTS, **own}
    if python := conf.get(_PYTHON):
        values.setdefault("spark.sql.execution.pyspark.python", python)
    return values


def artifacts(settings: SparkSettings) -> dict[str, tuple[str, ...]]:
    """Return the files to send to the server, which other masters take by the same settings.

    Returns:
        Paths by the keyword of `addArtifacts`; jars have none. A jar that is at the executors
        (`local:`) is left out.
    """
    jars = [path for path in settings.jars if not path.startswith("local:")]
    named = {kind: settings.conf.get(name, "").split(",") for kind, name in _SENT.items()}
    named[""] = jars
    files = {kind: tuple(filter(None, map(str.strip, paths))) for kind, paths in named.items()}
    return {kind: paths for kind, paths in files.items() if paths}


def executors_share_disk(settings: SparkSettings) -> bool:
    """Return whether the executors see the files that this process writes to local disk.

    They do in a local Spark, and in a local one of this user's `spark-server`.
    """
    place = settings.remote or settings.master
    if place.startswith("local"):
        return True
    server = own_server(place, os.environ)
    return server is not None and server.files is not None and server.files == visible_files()
