"""The jars of Maven coordinates, kept from one start of Spark to the next.

Spark resolves `spark.jars.packages` anew at every start, which takes seconds, and two processes
that fill its cache at the same time get in each other's way: both programs of a pipe do so. Here
the first start of all resolves, behind a lock; later ones name the jars.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from shared.spark.baked_packages import JARS, PACKAGES, split, with_baked, with_jars
from shared.spark.class_archive import archive_folder
from shared.storage.owned_folders import is_trusted

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
