from __future__ import annotations

import pytest

from shared.errors import SparkStartError
from shared.spark.conf import SparkSettings
from shared.spark.connect import artifacts, check_release, session_values
from shared.spark.spark_release import installed

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
