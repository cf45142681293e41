from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from shared.errors import SparkStartError
from shared.spark.conf import SparkSettings
from shared.spark.connect import artifacts, check_release, configure, session_values
from shared.spark.spark_release import installed

SENT = ("spark.archives", "spark.submit.pyFiles", "spark.files", "spark.pyspark.python")
URL = "sc://spark.example.com:443/;token=not-for-logs"


def test_files_of_the_settings_go_to_the_server() -> None:
    conf = {
        "spark.archives": "/opt/environment.tar.gz#environment",
        "spark.submit.pyFiles": "a.zip, b.py",
        "spark.files": "",
    }
    sent = artifacts(SparkSettings(jars=("driver.jar", "local:/opt/there.jar"), conf=conf))
    assert sent == {
        "": ("driver.jar",),
        "archive": ("/opt/environment.tar.gz#environment",),
        "pyfile": ("a.zip", "b.py"),
    }
    assert artifacts(SparkSettings()) == {}


class Session:
    """The configuration of a session, as a server has it."""

    listed = frozenset({"spark.sql.session.timeZone", "spark.sql.shuffle.partitions"})

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def isModifiable(self, key: str) -> bool:  # noqa: N802 - of Spark
        return key in self.listed

    def set(self, key: str, value: str) -> None:
        if value == "lost":
            raise PySparkException("status = StatusCode.UNAVAILABLE")
        if value == "bad" or key == "spark.executor.memory" or key in SENT:
            raise PySparkException(f"[CANNOT_MODIFY_CONFIG] {key}")
        self.values[key] = value


def test_a_session_gets_catalogs_and_hadoop_of_the_settings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = Session()
    conf = {
        **dict.fromkeys(SENT, "x.zip"),
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.hadoop.fs.s3a.endpoint": "http://s3",
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "4g",
    }
    with caplog.at_level("INFO"):
        configure(session, conf)
    assert session.values == {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "fs.s3a.endpoint": "http://s3",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.pyspark.python": "x.zip",
    }
    assert caplog.messages == [
        "the Spark Connect server does not take these settings of spark.conf: spark.executor.memory"
    ]
    for wrong in ({"spark.sql.shuffle.partitions": "bad"}, {"spark.sql.catalog.lake": "lost"}):
        with pytest.raises(PySparkException):
            configure(session, wrong)


def test_executors_run_the_python_of_the_settings() -> None:
    name = "spark.sql.execution.pyspark.python"
    conf = {"spark.pyspark.python": "environment/bin/python"}
    assert session_values(conf)[name] == "environment/bin/python"
    assert session_values({**conf, name: "python3"})[name] == "python3"
    assert name not in session_values({})


def test_a_server_of_another_release_is_one_clear_line() -> None:
    check_release(URL, f"{installed().line}.99")
    with pytest.raises(SparkStartError) as caught:
        check_release(URL, "3.4.1")
    text = str(caught.value)
    assert "the Spark Connect server at sc://spark.example.com:443/ has Spark 3.4.1" in text
    assert "pip install 'pyspark==3.4.*'" in text
    assert "not-for-logs" not in text
