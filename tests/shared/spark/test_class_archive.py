from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.errors import SparkStartError
from shared.spark import jvm, make_class_archive
from shared.spark.jvm import Java, archive_folder, archive_options, archive_path, base_archive

JAVA = Java(Path("/jdk"), "17.0.1", "test")


@pytest.fixture
def jars(tmp_path: Path) -> list[str]:
    for name in ("a.jar", "b.jar"):
        (tmp_path / name).write_bytes(b"x")
    return [str(tmp_path / "a.jar"), str(tmp_path / "b.jar")]


def environ(folder: Path) -> dict[str, str]:
    return {jvm.SWITCH: str(folder)}


@pytest.mark.parametrize("word", ["off", "OFF", "0", "no", "false"])
def test_switched_off(word: str, jars: list[str]) -> None:
    assert archive_folder({jvm.SWITCH: word}) is None
    assert archive_options(JAVA, jars, {jvm.SWITCH: word}) == []


def test_folder() -> None:
    assert archive_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/singer-spark")
    for relative in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "c"}):
        assert archive_folder(relative) == Path.home() / ".cache" / "singer-spark"
    assert archive_folder({jvm.SWITCH: "/x/y", "XDG_CACHE_HOME": "/c"}) == Path("/x/y")


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("no home directory")

    monkeypatch.setattr(Path, "home", home)
    assert archive_folder({}) is None


def test_no_archive_no_option(tmp_path: Path, jars: list[str]) -> None:
    assert archive_options(JAVA, jars, environ(tmp_path / "absent")) == []


@pytest.mark.parametrize("planted", ["folder", "archive", "base"])
def test_an_archive_that_others_may_have_written_is_not_used(
    tmp_path: Path, jars: list[str], planted: str
) -> None:
    """It holds the code of classes."""
    path = archive_path(JAVA, jars, environ(tmp_path))
    assert path is not None
    path.touch(0o644)
    base_archive(path).touch(0o644)
    assert archive_options(JAVA, jars, environ(tmp_path)) != []
    actual = {"folder": tmp_path, "archive": path, "base": base_archive(path)}[planted]
    actual.chmod(0o777)
    assert archive_options(JAVA, jars, environ(tmp_path)) == []


def test_an_archive_is_used(tmp_path: Path, jars: list[str]) -> None:
    path = archive_path(JAVA, jars, environ(tmp_path))
    assert path is not None
    path.write_bytes(b"")
    assert archive_options(JAVA, jars, environ(tmp_path)) == [
        "-Xshare:auto",
        f"-XX:SharedArchiveFile={path}",
    ]
    base_archive(path).write_bytes(b"")
    assert archive_options(JAVA, jars, environ(tmp_path))[1] == (
        f"-XX:SharedArchiveFile={base_archive(path)}:{path}"
    )


def test_the_name_changes_with_whatever_java_checks(tmp_path: Path, jars: list[str]) -> None:
    where = environ(tmp_path)
    names = [archive_path(JAVA, jars, where), archive_path(JAVA, jars, where)]
    assert len(set(names)) == 1
    names.append(archive_path(JAVA, jars[::-1], where))
    names.append(archive_path(Java(Path("/jdk2"), "17.0.1", ""), jars, where))
    names.append(archive_path(Java(Path("/jdk"), "17.0.2", ""), jars, where))
    os.utime(jars[0], (1, 1))
    names.append(archive_path(JAVA, jars, where))
    Path(jars[1]).unlink()
    names.append(archive_path(JAVA, jars, where))
    assert len(set(names)) == 6


def test_old_archives_are_dropped(tmp_path: Path) -> None:
    for n in range(6):
        (tmp_path / f"{n}.jsa").write_bytes(b"")
        (tmp_path / f"{n}.base").write_bytes(b"")
        os.utime(tmp_path / f"{n}.jsa", (n, n))
    make_class_archive._prune(tmp_path / "5.jsa")
    assert sorted(path.name for path in tmp_path.glob("*.jsa")) == [
        f"{n}.jsa" for n in (2, 3, 4, 5)
    ]
    assert len(list(tmp_path.glob("*.base"))) == 4


def test_a_failed_trial_run_is_told_while_java_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = [True]

    class JavaError(Exception):
        def __str__(self) -> str:
            assert alive[0], "asked after the end"
            return "no chmod here\n\tat org.apache.hadoop"

    class Starter:
        def __init__(self, settings: object) -> None:
            pass

        def start(self) -> None:
            pass

        def get(self) -> object:
            raise JavaError

        def stop(self, orderly_seconds: float) -> None:
            alive[0] = False

    monkeypatch.setattr("shared.spark.make_class_archive.SessionStarter", Starter)
    with pytest.raises(SparkStartError) as caught:
        make_class_archive._train(Path("/data"))
    assert not alive[0]
    assert str(caught.value) == "Spark's trial run failed: no chmod here"
