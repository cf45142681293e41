"""Paths of manifests: resolved, bounded, never twice. Without Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.errors import MessageError
from shared.formats.file_formats import Encoding
from shared.storage.access import StorageOptions
from shared.storage.urls import Roots
from target_spark.convert.batch_files import BatchFiles, reject_duplicates, resolve_files
from target_spark.core.load_plans import Batch, InputFile, StreamSchema
from target_spark.run_settings import TargetConfig

JSONL = Encoding("jsonl")


def files(*urls: str, encoding: Encoding = JSONL) -> list[InputFile]:
    return [InputFile(url, encoding) for url in urls]


def urls(*supplied: str, roots: list[str] | None = None) -> list[str]:
    return [file.url for file in resolve_files(files(*supplied), "s", roots)]


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    os.symlink("real", "link")
    assert urls("a.json", "./sub/../b.json", "link/c.json") == [
        f"{tmp_path}/a.json", f"{tmp_path}/b.json", f"{tmp_path}/real/c.json",
    ]  # fmt: skip
    monkeypatch.setenv("HOME", f"{tmp_path}/home")
    assert urls(f"file://{tmp_path}/d", f"file://localhost{tmp_path}/e", f"FILE:{tmp_path}/f") == [
        f"{tmp_path}/d", f"{tmp_path}/e", f"{tmp_path}/f",
    ]  # fmt: skip
    assert urls("file://a/b.json", "file:c.json", "~/d", roots=["file://a", "c.json", "~"]) == [
        f"{tmp_path}/a/b.json", f"{tmp_path}/c.json", f"{tmp_path}/home/d",
    ]  # fmt: skip
    assert urls("s3://bucket/k/x.json", "memory://a/b") == ["s3://bucket/k/x.json", "memory://a/b"]


def test_percent_signs_of_file_urls(tmp_path: Path) -> None:
    (tmp_path / "a b.json").touch()
    (tmp_path / "100%25.json").touch()
    assert urls(f"file://{tmp_path}/a%20b.json") == [f"{tmp_path}/a b.json"]
    assert urls(f"file://{tmp_path}/100%25.json") == [f"{tmp_path}/100%25.json"]
    assert urls(f"{tmp_path}/a%20b.json") == [f"{tmp_path}/a%20b.json"]


def test_staged_files_are_left_alone() -> None:
    staged = files("rel", encoding=Encoding("singer"))
    assert resolve_files(staged * 2, "s", ["/nowhere"]) == (*staged, *staged)


@pytest.mark.parametrize("supplied", ["in/a", "in/./b/../c", "file://{}/in/x", "in/inner-link/a"])
def test_inside_the_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supplied: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in" / "sub").mkdir(parents=True)
    os.symlink("sub", "in/inner-link")
    assert urls(supplied.format(tmp_path), roots=["in", "s3://b/p"])


@pytest.mark.parametrize(
    "supplied",
    ["../x", "in/../out/x", "/etc/passwd", "inside/x", "in/link/x", "in/file", "file:///etc/hosts",
     "s3://b/other/x", "s3://b/pp/x", "s3://b/p/../q/x", "s3://other/p/x", "memory://b/p/x",
     "s3://b/x/../p/y", "s3://b//p/x", "s3://b@c/p/x",
     "simplecache::file:///etc/passwd", "zip://x::s3://b/p/a.zip"],
)  # fmt: skip
def test_outside_of_the_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supplied: str
) -> None:
    work = tmp_path / "work"
    (work / "in").mkdir(parents=True)
    monkeypatch.chdir(work)
    os.symlink(tmp_path, "in/link")
    os.symlink("/etc/hosts", "in/file")
    with pytest.raises(MessageError, match=r"stream 's'.*allowed_roots") as caught:
        urls(supplied, roots=["in", "s3://b/p"])
    assert supplied.rpartition("/")[2] in str(caught.value)


def test_s3_prefixes() -> None:
    assert urls("s3://b/p/x", "s3a://b/p/q/../y", roots=["s3://b/p/"])
    assert urls("s3://b/x", roots=["s3://b"])
    assert len(urls("s3://b/x/y", "s3://b/x//y", "s3://b/x/./y", "s3://b/x/z/../y")) == 4


def test_no_root_at_all() -> None:
    with pytest.raises(MessageError):
        urls("/a", roots=[])


WEB_ROOTS = ["https://h.example/in", "http://h.example:8080", "s3://b/p", "https://h.example/a%20b"]


@pytest.mark.parametrize(
    "supplied",
    ["https://h.example/in/x", "https://H.EXAMPLE:443/in/x", "HTTPS://h.example/in/a%20b.json",
     "https://h.example/in/a b.json", "https://h.example/in/a/../b", "https://h.example/in/a%2fb",
     "http://h.example:8080/anything", "https://h.example/a%20b/x", "s3://b/p/x?y#z",
     "s3n://b/p/x", "https://h.example/in/100%25"],
)  # fmt: skip
def test_urls_inside_the_roots(supplied: str) -> None:
    assert urls(supplied, roots=WEB_ROOTS) == [supplied]


@pytest.mark.parametrize(
    "supplied",
    ["https://h.example/in/../x", "https://h.example/in/%2e%2e/x", "https://h.example/in/%2E./x",
     "https://h.example/in/..%2fx", "https://h.example/in%2f..%2fx", "https://h.example/in/%252e%252e/x",
     "https://h.example/x/%252e%252e/in/y", "https://h.example/x/%2e%2e/in/y",
     "https://h.example/in/..\\x", "https://h.example/in/..%5cx", "https://h.example/in/..;a=b/x",
     "https://h.example/in/x?y=1", "https://h.example/in/x#y", "https://h.example/in?/../../x",
     "https://h.example/in/\tx", "https://h.example/in/%00x", "https://h.example/in/%c0%ae%c0%ae/x",
     "https://h.example/in/.\n./x", "https://h.example/in/%25252525252e%25252525252e/x",
     "http://h.example/in/x", "https://h.example:8443/in/x", "https://h.example.evil/in/x",
     "https://evil@h.example/in/x", "https://h.example@evil/in/x", "https://h.example:443@evil/in/x",
     "https://h.example\\@evil/in/x", "https://evil\\.h.example/in/x", "https:///in/x",
     "https://h.example./in/x", "https://h.example/into/x", "//h.example/in/x",
     "s3://b/p/../q", "s3://b/p/%2e%2e/q", "s3://B/p/x", "ftp://h.example/in/x"],
)  # fmt: skip
def test_urls_outside_of_the_roots(supplied: str) -> None:
    """They are rejected, for every way in which a server may read them."""
    with pytest.raises(MessageError, match="allowed_roots"):
        urls(supplied, roots=WEB_ROOTS)


def test_who_gets_options() -> None:
    reach = Roots(["s3://mine/in", "https://h.example:443/x?signed", "/data"])
    options = StorageOptions({"key": "k"}, reach)
    for url in ("s3://mine/elsewhere", "s3a://mine/x", "https://H.example/y", "https://h.example"):
        assert options.for_url(url)["key"] == "k"
        assert not options.are_kept_from(url)
    others = ["s3://other/x", "https://h.example:8443/x", "http://h.example/x", "gs://mine/x",
              "https://u@h.example/x", "https://h.example.evil/x",
              "zip://x::s3://mine/x"]  # fmt: skip
    for url in others:
        assert "key" not in options.for_url(url)
        assert options.are_kept_from(url)
    assert not options.are_kept_from("/data/x")
    assert not StorageOptions({}, reach).are_kept_from("s3://other/x")
    assert StorageOptions({"key": "k"}).for_url("s3://other/x") == {"key": "k"}


@pytest.mark.parametrize(
    "pair", [("/a/b", "/a/b"), ("/a/b", "/a/x/../b"), ("/a", "file:///a"), ("s3://b/k", "s3a://b/k"),
             ("https://h/a", "https://H:443/%61")]
)  # fmt: skip
def test_listed_twice(pair: tuple[str, str]) -> None:
    with pytest.raises(MessageError, match="listed twice;"):
        urls(*pair)


def test_listed_in_two_messages() -> None:
    reject_duplicates(files("/a", "/b"), "s")
    with pytest.raises(MessageError, match=r"stream 's', file '/a'.*twice"):
        reject_duplicates(files("/a", "/b", "/a"), "s")
    reject_duplicates(files("/a", encoding=Encoding("singer")) * 2, "s")


def test_unknown_formats() -> None:
    for name in ("xml", "singer2", "json"):
        with pytest.raises(MessageError, match=rf"file '/a'.*unknown batch file format '{name}'"):
            resolve_files(files("/a", encoding=Encoding(name)), "s")


def test_secrets_of_urls_are_not_shown() -> None:
    with pytest.raises(MessageError) as caught:
        urls("s3://me:hidden@b/k?token=hidden", roots=["s3://c"])
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("name", ["pipe", "folder", "device"])
def test_what_is_no_file_is_not_read(tmp_path: Path, name: str) -> None:
    """A pipe or device has no size: it would count as an empty file, and no row would be loaded."""
    os.mkfifo(tmp_path / "pipe")
    os.mkdir(tmp_path / "folder")
    os.symlink(os.devnull, tmp_path / "device")
    batch = Batch(StreamSchema("s", {}), tuple(files(str(tmp_path / name))), "token")
    with pytest.raises(MessageError, match=rf"stream 's'.*(/{name}|/dev/null)'.*: it is no file"):
        BatchFiles(TargetConfig(path="x")).resolved(batch)
