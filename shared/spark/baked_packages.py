"""Jars of packages that an image brings (`bake_packages`), so that nothing is downloaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from shared.errors import SparkStartError

VARIABLE = "SINGER_SPARK_JARS"
"""Environment variable: the folder of the jars; as `local:FOLDER` if every executor has it, too."""
_EVERYWHERE = "local:"
INDEX = "packages.json"
PACKAGES, JARS = "spark.jars.packages", "spark.jars"
_NAMED = re.compile(r"(.+?)-(\d[\w.-]*)\.jar")


def with_baked(conf: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Replace packages by their jars, if the image has them; others stay.

    Args:
        conf: The whole Spark configuration.
        environ: The environment.

    Raises:
        SparkStartError: The folder that the environment names has no valid index.
    """
    named, wanted = environ.get(VARIABLE), split(conf.get(PACKAGES, ""))
    if not named or not wanted:
        return dict(conf)
    folder = named.removeprefix(_EVERYWHERE)
    try:
        index = json.loads((Path(folder) / INDEX).read_bytes())
    except (OSError, ValueError) as error:
        raise SparkStartError(
            f"SINGER_SPARK_JARS names '{folder}', which has no valid packages.json",
            hint="make it by `python -m shared.spark.bake_packages`, or unset the variable",
        ) from error
    names = newest(name for package in wanted for name in index.get(package, ()))
    jars = [(Path(folder) / name).as_uri() for name in names]
    if named.startswith(_EVERYWHERE):
        jars = [jar.replace("file://", _EVERYWHERE, 1) for jar in jars]
    left = [package for package in wanted if package not in index]
    return with_jars(conf, jars) | ({PACKAGES: ",".join(left)} if left else {})


def with_jars(conf: Mapping[str, str], jars: Iterable[str]) -> dict[str, str]:
    """Return a configuration with jars in place of its packages."""
    kept = {name: value for name, value in conf.items() if name != PACKAGES}
    return {**kept, JARS: ",".join(dict.fromkeys([*split(conf.get(JARS, "")), *jars]))}


def newest(names: Iterable[str]) -> list[str]:
    """Return the jars without older versions of the same: packages were resolved one by one."""
    versions: dict[str, tuple[list[int], str]] = {}
    for name in names:
        artifact, version = artifact_and_version(name)
        this = [int(number) for number in re.findall(r"\d+", version)], name
        versions[artifact] = max(versions.get(artifact, this), this)
    return [name for _, name in versions.values()]


def artifact_and_version(name: str) -> tuple[str, str]:
    """Return both parts of a jar's name; the version is empty if the name has none."""
    match = _NAMED.fullmatch(name)
    return (match[1], match[2]) if match else (name, "")


def split(text: str) -> list[str]:
    """Return the parts of a list of Spark's configuration."""
    return [part.strip() for part in text.split(",") if part.strip()]
