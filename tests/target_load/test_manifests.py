"""Paths of manifests: resolved, bounded, never twice. Without Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.encodings import Encoding
from shared.errors import MessageError
from target_spark.manifests import refuse_repeated, resolve
from target_spark.plans import InputFile

JSONL = Encoding("jsonl")


def files(*urls: str, encoding: Encoding = JSONL) -> list[InputFile]:
    return [InputFile(url, encoding) for url in urls]


def urls(*given: str, roots: list[str] | None = None) -> list[str]:
    return [file.url for file in resolve(files(*given), "s", roots)]


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    os.symlink("real", "link")
    assert urls("a.json", "./sub/../b.json", "link/c.json") == [
        f"{tmp_path}/a.json", f"{tmp_path}/b.json", f"{tmp_path}/real/c.json",
    ]  # fmt: skip
    assert urls(f"file://{tmp_path}/d") == [f"{tmp_path}/d"]
    assert urls("s3://bucket/k/x.json", "memory://a/b") == ["s3://bucket/k/x.json", "memory://a/b"]


def test_percent_signs_of_file_urls(tmp_path: Path) -> None:
    (tmp_path / "a b.json").touch()
    (tmp_path / "100%25.json").touch()
    assert urls(f"file://{tmp_path}/a%20b.json") == [f"{tmp_path}/a b.json"]
    assert urls(f"file://{tmp_path}/100%25.json") == [f"{tmp_path}/100%25.json"]
    assert urls(f"{tmp_path}/a%20b.json") == [f"{tmp_path}/a%20b.json"]


def test_staged_files_are_left_alone() -> None:
    staged = files("rel", encoding=Encoding("singer"))
    assert resolve(staged * 2, "s", ["/nowhere"]) == (*staged, *staged)


@pytest.mark.parametrize("given", ["in/a", "in/./b/../c", "file://{}/in/x", "in/inner-link/a"])
def test_inside_the_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in" / "sub").mkdir(parents=True)
    os.symlink("sub", "in/inner-link")
    assert urls(given.format(tmp_path), roots=["in", "s3://b/p"])


@pytest.mark.parametrize(
    "given",
    ["../x", "in/../out/x", "/etc/passwd", "inside/x", "in/link/x", "in/file", "file:///etc/hosts",
     "s3://b/other/x", "s3://b/pp/x", "s3://b/p/../q/x", "s3://other/p/x", "memory://b/p/x",
     "simplecache::file:///etc/passwd", "zip://x::s3://b/p/a.zip"],
)  # fmt: skip
def test_outside_of_the_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    work = tmp_path / "work"
    (work / "in").mkdir(parents=True)
    monkeypatch.chdir(work)
    os.symlink(tmp_path, "in/link")
    os.symlink("/etc/hosts", "in/file")
    with pytest.raises(MessageError, match=r"stream 's'.*allowed_roots") as caught:
        urls(given, roots=["in", "s3://b/p"])
    assert given.rpartition("/")[2] in str(caught.value)


def test_s3_prefixes() -> None:
    assert urls("s3://b/p/x", "s3a://b/p/q/../y", roots=["s3://b/p/"])
    assert urls("s3://b/x", roots=["s3://b"])


def test_no_root_at_all() -> None:
    with pytest.raises(MessageError):
        urls("/a", roots=[])


@pytest.mark.parametrize(
    "pair", [("/a/b", "/a/b"), ("/a/b", "/a/x/../b"), ("/a", "file:///a"), ("s3://b/k", "s3a://b//k")]
)  # fmt: skip
def test_listed_twice(pair: tuple[str, str]) -> None:
    with pytest.raises(MessageError, match="listed twice;"):
        urls(*pair)


def test_listed_in_two_messages() -> None:
    refuse_repeated(files("/a", "/b"), "s")
    with pytest.raises(MessageError, match=r"stream 's', file '/a'.*twice"):
        refuse_repeated(files("/a", "/b", "/a"), "s")
    refuse_repeated(files("/a", encoding=Encoding("singer")) * 2, "s")


def test_unknown_formats() -> None:
    for name in ("xml", "singer2", "json"):
        with pytest.raises(MessageError, match=rf"file '/a'.*'{name}' are unknown"):
            resolve(files("/a", encoding=Encoding(name)), "s")


def test_secrets_of_urls_are_not_shown() -> None:
    with pytest.raises(MessageError) as caught:
        urls("s3://me:hidden@b/k?token=hidden", roots=["s3://c"])
    assert "hidden" not in str(caught.value)
