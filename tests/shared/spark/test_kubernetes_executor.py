"""The command line of an executor in a container."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shared.errors import SparkStartError
from shared.spark.jvm import Java
from shared.spark.kubernetes_executor import (
    ARGUMENTS,
    BACKEND,
    CLASSPATH,
    MEMORY,
    OPTION,
    executor_command,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENVIRON = {name: name.lower() for name in ARGUMENTS.values()} | {MEMORY: "2g"}


@pytest.fixture
def java(tmp_path: Path) -> Java:
    (tmp_path / "release").write_text('JAVA_VERSION="21"\nMODULES="java.base java.sql"\n')
    return Java(tmp_path, "21", "here")


def test_what_spark_says_reaches_java(java: Java) -> None:
    options = {
        "SPARK_JAVA_OPT_10": "-Dc=3",
        "SPARK_JAVA_OPT_2": "-Dx=a b",
        "SPARK_JAVA_OPT_0": "-a",
    }
    actual = executor_command({**ENVIRON, **options, CLASSPATH: "/extra/*"}, java)
    assert actual[:6] == [str(java.binary), "-a", "-Dx=a b", "-Dc=3", "-Xms2g", "-Xmx2g"]
    assert actual[7].startswith("/extra/*:")
    assert "spark-kubernetes_" in actual[7]
    supplied = actual[actual.index(BACKEND) + 1 :]
    assert dict(zip(supplied[::2], supplied[1::2], strict=True)) == {
        option: name.lower() for option, name in ARGUMENTS.items()
    }


def test_modules_that_java_lacks_are_left_out(java: Java) -> None:
    options = {"SPARK_JAVA_OPT_0": "--add-modules=jdk.incubator.vector"}
    assert executor_command({**ENVIRON, **options}, java)[1] == "-Xms2g"
    options = {"SPARK_JAVA_OPT_0": "--add-modules=java.sql"}
    assert executor_command({**ENVIRON, **options}, java)[1] == "--add-modules=java.sql"


def test_another_caller_than_spark(java: Java) -> None:
    with pytest.raises(SparkStartError, match="the environment lacks SPARK_EXECUTOR_ID"):
        executor_command({name: x for name, x in ENVIRON.items() if name[-3:] != "_ID"}, java)


@pytest.mark.spark
def test_spark_has_these_names(spark: SparkSession) -> None:
    java: Any = spark._jvm  # type: ignore[attr-defined]
    constants = getattr(getattr(java.org.apache.spark.deploy.k8s, "Constants$"), "MODULE$")
    names = {
        getattr(constants, name)()
        for name in dir(constants)
        if name.startswith("ENV_") and "$" not in name
    }
    assert {*ARGUMENTS.values(), MEMORY, CLASSPATH} <= names
    assert OPTION.fullmatch(f"{constants.ENV_JAVA_OPT_PREFIX()}0")
    java.java.lang.Class.forName(BACKEND)
