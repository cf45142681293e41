"""Start an executor of Spark in a container of Kubernetes; the entrypoint of its image.

Spark's scheduler starts the container with the argument `executor` and with environment variables
(`org.apache.spark.deploy.k8s.Constants`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import NoReturn

from shared.errors import SparkStartError
from shared.spark.jvm import Java, classpath, find_java

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
MEMORY, CLASSPATH = "SPARK_EXECUTOR_MEMORY", "SPARK_CLASSPATH"
OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_ADD_MODULES = "--add-modules="


def executor_command(environ: Mapping[str, str], java: Java) -> list[str]:
    """Return the command line of the executor.

    Raises:
        SparkStartError: A variable is missing.
    """
    missing = [name for name in (MEMORY, *ARGUMENTS.values()) if name not in environ]
    if missing:
        raise SparkStartError(
            f"the environment lacks {', '.join(missing)}",
            hint="Spark starts this image itself: name it in spark.kubernetes.executor.container"
            ".image",
        )
    options = sorted((int(m[1]), name) for name in environ if (m := OPTION.fullmatch(name)))
    values = [environ[name] for _, name in options]
    extra = [environ[CLASSPATH]] if environ.get(CLASSPATH) else []
    return [
        str(java.binary),
        *(option for option in values if _is_known(option, java)),
        f"-Xms{environ[MEMORY]}",
        f"-Xmx{environ[MEMORY]}",
        "-cp",
        os.pathsep.join([*extra, *classpath(environ)]),
        BACKEND,
        *(word for option, name in ARGUMENTS.items() for word in (option, environ[name])),
    ]


def _is_known(option: str, java: Java) -> bool:
    """Return whether Java starts with an option: that of the wheel lacks some modules."""
    if not option.startswith(_ADD_MODULES):
        return True
    release = (java.home / "release").read_text(encoding="utf-8", errors="replace")
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    wanted = option.removeprefix(_ADD_MODULES).split(",")
    return modules is None or set(wanted) <= set(modules[1].split())


def main() -> NoReturn:
    """Replace this process by the executor's Java."""
    try:
        command = executor_command(os.environ, find_java(os.environ))
    except SparkStartError as error:
        sys.stderr.write(f"executor: {error}\n")
        sys.exit(error.exit_code)
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
