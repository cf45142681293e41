"""The files of a path: one rule for names, whatever reads them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import fsspec
import pytest
from tap_runs import stream

from shared.errors import SourceError
from shared.singer.datasets import place_name
from tap_spark.sources.files.paths import (
    _locked_folders,
    _url_of,
    escaped,
    list_files,
    resolve_paths,
)
from tap_spark.sources.source import driver_source_for, source_for

NAMES = [
    *("a.csv", "b.csv", "_c.csv", ".d.csv", "e f.csv", "g%20h.csv", "i:j.csv", "k[1].csv"),
    *("x/a.csv", "x/y/a.csv", "_z/a.csv", ".w/a.csv", "p/day=1/a.csv"),
]


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
    return tmp_path / "data"


PLAIN = {"a.csv", "b.csv", "e f.csv", "g%20h.csv", "i:j.csv", "k[1].csv"}


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("{}", PLAIN),
        ("{}/", PLAIN),
        ("{}/*.csv", PLAIN),
        ("{}//*.csv", PLAIN),
        ("{}/../data/*.csv", PLAIN),
        ("{}/x/../a.csv", {"a.csv"}),
        ("{}/./a.csv", {"a.csv"}),
        ("{}/**/*.csv", PLAIN | {"x/a.csv", "x/y/a.csv", "p/day=1/a.csv"}),
        ("{}/**", PLAIN | {"x/a.csv", "x/y/a.csv", "p/day=1/a.csv"}),
        ("{}/x/**/a.csv", {"x/a.csv", "x/y/a.csv"}),
        ("{}/_*.csv", {"_c.csv"}),
        ("{}/_c.csv", {"_c.csv"}),
        ("{}/.d.csv", {".d.csv"}),
        ("{}/_z/*.csv", {"_z/a.csv"}),
        ("{}/k[1].csv", {"k[1].csv"}),
        ("{}/k\\[1\\]*", {"k[1].csv"}),
        ("{}/[^a].csv", {"b.csv"}),
        ("{}/[ab].csv", {"a.csv", "b.csv"}),
        ("{}/i:j.csv", {"i:j.csv"}),
        ("{}/e f.*", {"e f.csv"}),
        ("{}/p", {"p/day=1/a.csv"}),
        (("{}/a.csv", "{}/*.csv"), PLAIN),
        (("{}", "{}/a.csv", "{}/../data/b.csv"), PLAIN),
        (("{}/[ab].csv", "{}/x"), {"a.csv", "b.csv", "x/a.csv"}),
    ],
)
def test_names_of_files(folder, path, names):
    one = isinstance(path, str)
    supplied = tuple(part.replace("{}", str(folder)) for part in ((path,) if one else path))
    paths = resolve_paths(stream("csv", supplied[0] if one else supplied))
    actual = [os.path.relpath(file.url, folder) for file in list_files(paths)]
    assert sorted(actual) == sorted(names)
    # Spark reads a file as often as paths lead to it.
    assert sum(len(list_files((part,))) for part in paths) == len(actual)


def test_a_link_to_a_folder_is_followed_and_dots_after_it_are_those_of_its_target(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder / "x" / "y")
    (file,) = list_files(resolve_paths(stream("csv", str(tmp_path / "link" / ".." / "a.csv"))))
    assert file.url == str(folder / "x" / "a.csv")
    (file,) = list_files(resolve_paths(stream("csv", str(tmp_path / "link" / "*.csv"))))
    assert file.url == str(tmp_path / "link" / "a.csv")


def test_a_name_that_begins_with_a_tilde_is_no_home_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    Path("~$a.csv").touch()
    assert resolve_paths(stream("csv", "~$a.csv")) == (f"{folder}/~$a.csv",)
    assert place_name("~$a.csv") == ("file", f"{folder}/~$a.csv")


def test_a_pipe_or_device_is_no_file(folder):
    """Its bytes come once: a reader that opens it again waits forever, or reads nothing."""
    os.mkfifo(folder / "pipe.csv")
    for path in (str(folder / "pipe.csv"), f"file://{folder}/pipe.csv", os.devnull):
        with pytest.raises(SourceError, match=r"stream '.*neither a file nor a folder \(.*save"):
            resolve_paths(stream("csv", path))
    (file,) = list_files(resolve_paths(stream("csv", (f"{folder}/p*.csv", f"{folder}/a.csv"))))
    assert file.url == str(folder / "a.csv")


def test_a_folder_that_cannot_be_read_is_an_error_of_the_source(folder, monkeypatch):
    paths = resolve_paths(stream("csv", (f"{folder}/x", f"{folder}/p")))
    for path in (f"{folder}/{'y' * 300}.csv", f"{folder}/{'y' * 300}*/a.csv"):
        with pytest.raises(SourceError, match=r"file '.*yyy.*(does not exist|no file matches)"):
            resolve_paths(stream("csv", path))
    alternatives = ",".join(["x", *(f"other{number}" for number in range(60))])
    assert len(resolve_paths(stream("csv", f"{folder}/{{{alternatives}}}"))) == 1

    def denied(path, *_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(SourceError, match=r"/x': cannot list .*denied \(check the permissions"):
        list_files(paths)
    with pytest.raises(SourceError, match="denied"):  # Spark is not asked, either.
        driver_source_for(stream("csv", f"{folder}/x")).plain_files()
    monkeypatch.setattr(Path, "exists", denied)
    with pytest.raises(SourceError, match=r"stream 's', file '.*/x': cannot list .*denied \(check"):
        resolve_paths(stream("csv", f"{folder}/x"))


def test_a_pattern_warns_of_folders_that_it_cannot_look_into(folder, monkeypatch, caplog):
    """Python's `glob` leaves out what is in them without a word."""
    allowed = os.access
    locked = str(folder / "x")
    monkeypatch.setattr(os, "access", lambda path, mode: path != locked and allowed(path, mode))
    for path in (f"{folder}/**/*.csv", f"{folder}/*/a.csv", f"{folder}/{{x,p}}/*/*.csv"):
        caplog.clear()
        resolve_paths(stream("csv", path))
        [line] = caplog.messages
        assert locked in line
        assert "cannot be read" in line
    caplog.clear()
    assert _locked_folders("/*.csv") == []
    resolve_paths(stream("csv", (f"{folder}/*.csv", f"{folder}/p/**", f"{folder}/p*/*/*.csv")))
    assert not caplog.messages


def test_a_file_in_a_storage_is_read_once_if_several_paths_lead_to_it():
    storage = fsspec.filesystem("memory")
    for name in ("a", "b"):
        storage.pipe(f"/once/{name}.csv", b"1\n")
    for second, count in (("a.csv", 2), ("c*.csv", 2)):
        paths = resolve_paths(stream("parquet", ("memory://once/*.csv", f"memory://once/{second}")))
        assert sum(len(list_files((path,))) for path in paths) == count


def test_names_in_a_storage_may_have_the_characters_of_patterns():
    names = ["/names/k[1].csv", "/names/a{1,2}.csv", "/names/s*r?.csv", "/names/b\\c.csv"]
    storage = fsspec.filesystem("memory")
    for name in names:
        storage.pipe(name, b"1\n")
    urls = {file.url for file in list_files(("memory://names/*",))}
    assert urls == {f"memory:/{name}" for name in names}
    for url in urls:
        assert [file.url for file in list_files((escaped(url),))] == [url]
    (file,) = list_files(("memory://names/[^abs]*",))
    assert file.url == "memory://names/k[1].csv"


def test_names_that_are_not_utf8_are_errors(folder):
    """Spark would leave the file out."""
    Path(os.fsdecode(os.fsencode(folder / "x") + b"/caf\xe9.csv")).write_text("1\n")
    for path in (f"{folder}/x", f"{folder}/x/c*"):
        with pytest.raises(SourceError, match=r"/caf\\xe9.csv': .*not UTF-8 \(rename the file\)"):
            list_files(resolve_paths(stream("csv", path)))
        with pytest.raises(SourceError, match="not UTF-8"):
            source_for(stream("csv", path)).listed(None, [path])


@pytest.mark.parametrize(
    ("path", "inside", "name", "url"),
    [
        ("hdfs://nn:8020/data", "/data", "/data/a.csv", "hdfs://nn:8020/data/a.csv"),
        ("hdfs://data/data/", "/data", "/data/a.csv", "hdfs://data/data/a.csv"),
        ("sftp://me@host/", "/", "/a.csv", "sftp://me@host/a.csv"),
        ("webhdfs://h:1/*", "/*", "/a.csv", "webhdfs://h:1/a.csv"),
        ("abfss://c@x.net/d*/", "c/d*", "c/d1/a.csv", "abfss://c@x.net/d1/a.csv"),
        ("abfss://c@x.net", "c", "c/c/a.csv", "abfss://c@x.net/c/a.csv"),
        ("s3a://b/d", "b/d", "b/d/a.csv", "s3a://b/d/a.csv"),
        ("gs://b/", "b", "b/b/a.csv", "gs://b/b/a.csv"),
        ("memory://names/*", "/names/*", "/names/a.csv", "memory://names/a.csv"),
        ("https://h/d", "https://h/d", "https://h/d/a.csv", "https://h/d/a.csv"),
    ],
)
def test_urls_keep_what_names_lack(path, inside, name, url):
    assert _url_of(name, path, inside) == url
