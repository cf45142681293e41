"""Connect to a Spark Connect server."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING

from shared.errors import SettingsError, SparkLostError, SparkStartError, Where
from shared.spark.conf import SQL_DEFAULTS
from shared.spark.server_record import own_server
from shared.spark.spark_settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_SECONDS = 10.0
CONNECT_FLAG = "SPARK_CONNECT_MODE_ENABLED"
CONNECT_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105
_PASSING = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED"})
"""Status codes of a server that may take us later."""


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


def connect(url: str, settings: SparkSettings) -> SparkSession:
    """Connect to a server.

    Args:
        url: `sc://host:port`, with parameters. That of `spark-server` needs no token: its record
            has it.
        settings: What to set in the session.

    Raises:
        SparkStartError: The server does not answer, or rejects us.
    """
    import grpc  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql.connect.client.core import DefaultChannelBuilder  # noqa: PLC0415
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415

    server = own_server(url, os.environ)
    if server is not None:
        os.environ.setdefault(CONNECT_TOKEN, server.token)

    # Asked first with a limit of our own: Spark's client would try again for many minutes.
    with contextlib.closing(DefaultChannelBuilder(url).toChannel()) as channel:
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
        for key, value in {**SQL_DEFAULTS, **settings.conf}.items():
            if session.conf.isModifiable(key):
                session.conf.set(key, value)
    except (grpc.RpcError, PySparkException) as error:
        code = re.search(r"StatusCode\.(\w+)", str(error))
        if code is None:
            raise
        kind = SparkLostError if code[1] in _PASSING else SparkStartError
        raise kind(
            f"the Spark Connect server at {url.partition(';')[0]} rejects us: {code[1]}",
            where=Where(setting="spark.remote"),
            hint=f"check its token ({CONNECT_TOKEN}, or ';token=' in the URL)",
        ) from error
    return session  # type: ignore[return-value]


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its class."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
