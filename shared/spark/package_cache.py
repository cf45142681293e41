"""The jars of Maven coordinates: those that an image brings, and those kept from earlier starts.

Spark resolves `spark.jars.packages` anew at every start, which takes seconds, and two processes
that fill its cache at the same time get in each other's way: both programs of a pipe do so. Here
the first start of all resolves, behind a lock; later ones name the jars. `bake_packages` brings
jars into an image, so that nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from shared.errors import SparkStartError
from shared.spark.java import archive_folder
from shared.storage.owned_folders import is_trusted

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


_DECIDE = (
    PACKAGES,
    "spark.jars.excludes",
    "spark.jars.ivy",
    "spark.jars.ivySettings",
    "spark.jars.repositories",
)
Remember = Callable[[str], None]


@contextmanager
def resolved(
    conf: Mapping[str, str], environ: Mapping[str, str]
) -> Iterator[tuple[dict[str, str], Remember]]:
    """Replace packages by their jars if these are known; else hold a lock while Spark resolves.

    Args:
        conf: The whole Spark configuration.
        environ: The environment (`SINGER_SPARK_CLASS_ARCHIVE`, XDG_CACHE_HOME set the
            folder; `SINGER_SPARK_JARS` has jars of an image).

    Yields:
        The configuration to start Spark with, and a function that takes what `spark.jars` is
        once Spark runs.
    """
    conf = with_baked(conf, environ)
    place = _place(conf, environ)
    if place is None:
        yield conf, _forget
        return
    jars = _remembered(place)
    if jars is not None:
        yield with_jars(conf, jars), _forget
        return
    with only_resolver(environ):
        jars = _remembered(place)
        if jars is not None:
            yield with_jars(conf, jars), _forget
            return
        own = set(split(conf.get(JARS, "")))

        def remember(paths: str) -> None:
            _write(place, [jar for jar in split(paths) if jar not in own])

        yield dict(conf), remember


def _place(conf: Mapping[str, str], environ: Mapping[str, str]) -> Path | None:
    folder = archive_folder(environ)
    packages = conf.get(PACKAGES, "")
    if folder is None or not packages or "SNAPSHOT" in packages:
        return None
    # Another home for Spark's own cache means another set of files.
    decides = json.dumps([[conf.get(name, "") for name in _DECIDE], environ.get("HOME", "")])
    return folder / f"packages-{hashlib.sha256(decides.encode()).hexdigest()[:16]}.json"


def _remembered(place: Path) -> list[str] | None:
    """Return the jars, if they all still exist and only we can have named them."""
    if not (is_trusted(place.parent) and is_trusted(place)):
        return None
    try:
        jars = json.loads(place.read_bytes())
        if isinstance(jars, list) and jars and all(_is_file(jar) for jar in jars):
            return jars
    except (OSError, ValueError):
        pass
    return None


def _is_file(jar: object) -> bool:
    return isinstance(jar, str) and Path(jar.removeprefix("file:")).is_file()


def _write(place: Path, jars: list[str]) -> None:
    if not jars or not all(_is_file(jar) for jar in jars):
        return
    part = place.with_suffix(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):
        part.write_text(json.dumps(jars), encoding="utf-8")
        part.replace(place)


def _forget(_: str) -> None:
    """Remember nothing."""


@contextmanager
def only_resolver(environ: Mapping[str, str]) -> Iterator[None]:
    """Wait for another process that resolves packages: all fill the same cache."""
    folder = archive_folder(environ)
    if folder is None:
        yield
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = folder / "packages.lock"
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # it works without, only slower
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
