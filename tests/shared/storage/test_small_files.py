"""Small remote files that are kept: which ones, and how many. Pure."""

from __future__ import annotations

import io

from shared.storage.access import RemoteFile, SmallFiles


class Stored(io.BytesIO):
    """A file of fsspec; counts how often it is fetched."""

    fetched = 0

    def __init__(self, content: bytes, tag: str | None) -> None:
        super().__init__(content)
        self.size, self.details = len(content), {} if tag is None else {"ETag": tag}

    def read(self, count: int | None = -1) -> bytes:
        Stored.fetched += 1
        return super().read(count)


def fetches(files: SmallFiles, url: str, content: bytes, tag: str | None) -> int:
    before, stored = Stored.fetched, Stored(content, tag)
    kept = files.content(url, RemoteFile(stored, url, None))
    assert kept == (content if kept is not None else None)
    assert stored.closed == (kept is not None)
    return Stored.fetched - before


def test_a_file_is_fetched_once_for_each_content() -> None:
    files = SmallFiles()
    assert [fetches(files, "s3://b/x", b"one", "1") for _ in range(3)] == [1, 0, 0]
    assert fetches(files, "s3://b/x", b"two", "2") == 1
    assert fetches(files, "s3://b/y", b"one", "1") == 1


def test_large_files_and_those_without_a_tag_are_not_kept() -> None:
    files = SmallFiles(longest=4)
    assert fetches(files, "s3://b/x", b"12345", "1") == 0
    assert fetches(files, "s3://b/x", b"1234", None) == 0
    assert files.content("s3://b/x", RemoteFile(Stored(b"12345", "1"), "s3://b/x", None)) is None


def test_files_opened_long_ago_go_first() -> None:
    files = SmallFiles(most=10)
    for name in ("a", "b", "a", "c"):
        fetches(files, name, b"12345", "1")
    assert [fetches(files, name, b"12345", "1") for name in ("a", "c", "b")] == [0, 0, 1]
