"""Many files at once: their sizes and checksums, and their removal, in few requests.

S3 lists and deletes a thousand objects by one request. Whatever it refuses so, and other storages,
get one request for each file, of which some wait at the same time.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from shared.storage.access import StorageOptions, delete, failures, remote, size_of
from shared.storage.urls import S3_SCHEMES, local_path

PAGE = 1000
"""Objects that S3 lists or deletes by one request."""
_THREADS = 16
_FEWEST = 10
"""Files that a listing must find to be cheaper than a request for each."""
_MD5 = re.compile(r"[0-9a-f]{32}(-[0-9]+)?")
"""The MD5 of an object, or of those of its parts."""
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class StorageFacts:
    """What a storage says of a file.

    Attributes:
        size: Bytes.
        checksum: Identifies the content of a file, whatever its name: its size and the MD5 that S3
            (`ETag`), Google (`md5Hash`) or Azure (`content_md5`) keep. None for local files, and if
            the storage keeps no such checksum. Other kinds of ETag belong to one object: those of a
            multipart upload with a customer's key, and of Azure.
    """

    size: int
    checksum: str | None = None


def facts_of(
    urls: Sequence[str], options: StorageOptions | None = None
) -> list[StorageFacts | OSError]:
    """Return the facts of files, in order; an error for a file that is missing or out of reach."""
    far = [url for url in urls if local_path(url) is None]
    listed = _by_bucket(far, options, _listed)
    ask = partial(_asked, options=options)
    return _each(lambda url: listed.get(url) or ask(url), urls)


def delete_all(
    urls: Sequence[str], options: StorageOptions | None = None
) -> list[tuple[str, OSError]]:
    """Remove files, if they exist; return those that cannot be removed, with the reason."""
    far = [url for url in urls if local_path(url) is None]
    gone = _by_bucket(far, options, _deleted)
    left = [url for url in urls if url not in gone]
    errors = _each(partial(_failure, partial(delete, options=options)), left)
    return [(url, error) for url, error in zip(left, errors, strict=True) if error]


def _each(work: Callable[[str], _Result], urls: Sequence[str]) -> list[_Result]:
    """Return what `work` returns for each URL, in order."""
    try:
        with ThreadPoolExecutor(_THREADS, "files") as threads:
            return list(threads.map(work, urls))
    except RuntimeError:  # The process ends: functions at exit get no new threads.
        return list(map(work, urls))


def _asked(url: str, options: StorageOptions | None) -> StorageFacts | OSError:
    try:
        if local_path(url) is not None:
            return StorageFacts(size_of(url))
        filesystem, inside = remote(url, options)
        with failures(url, options):
            return _facts(filesystem.info(inside))
    except OSError as error:
        return error


def _failure(work: Callable[[str], None], url: str) -> OSError | None:
    try:
        work(url)
    except OSError as error:
        return error
    return None


def _facts(info: Mapping[str, Any]) -> StorageFacts:
    checksums = [info.get(name) for name in ("md5Hash", "content_md5") if info.get(name)]
    etag = str(info.get("ETag") or "").strip('"')
    checksums += [etag] if _MD5.fullmatch(etag) else []
    size = int(info.get("size") or info.get("Size") or 0)
    return StorageFacts(size, f"{size} {checksums[0]}" if checksums else None)


_Ask = Callable[[Any, str, Mapping[str, str]], Iterable[tuple[str, StorageFacts]]]
"""Gets the file system, a bucket and URLs by key; yields keys with what is known of them."""


def _by_bucket(
    urls: Sequence[str], options: StorageOptions | None, ask: _Ask
) -> dict[str, StorageFacts]:
    """Return what requests for many objects of S3 tell; nothing of those that fail."""
    facts_by_url: dict[str, StorageFacts] = {}
    urls = [url for url in urls if url.startswith(S3_SCHEMES)]
    if len(urls) < _FEWEST:
        return facts_by_url
    buckets: dict[tuple[int, str], dict[str, str]] = defaultdict(dict)
    systems: dict[int, Any] = {}
    for url in urls:
        with suppress(OSError):
            filesystem, inside = remote(url, options)
            bucket, key, _ = filesystem.split_path(inside)
            systems[id(filesystem)] = filesystem
            buckets[id(filesystem), bucket][key] = url
    for (system, bucket), keys in buckets.items():
        with suppress(Exception):  # A request for each file says what is wrong.
            for key, facts in ask(systems[system], bucket, keys):
                facts_by_url[keys[key]] = facts
    return facts_by_url


def _listed(
    filesystem: Any, bucket: str, keys: Mapping[str, str]
) -> Iterator[tuple[str, StorageFacts]]:
    """List the folders of keys by pages, each of which begins at a key that is wanted."""
    folders: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        folders[key.rpartition("/")[0]].append(key)
    for folder, inside in folders.items():
        left = deque(sorted(inside, key=str.encode))
        while len(left) >= _FEWEST:
            # A page begins after a text: the wanted key without its last letter sorts before it.
            page = filesystem.call_s3(
                "list_objects_v2",
                Bucket=bucket,
                Prefix=f"{folder}/" if folder else "",
                StartAfter=left[0][:-1],
                MaxKeys=PAGE,
            )
            entries = {entry["Key"]: entry for entry in page.get("Contents", ())}
            last = max(entries, key=str.encode, default="")
            ends = not page.get("IsTruncated")
            passed = [key for key in left if ends or key.encode() <= last.encode()]
            for key in passed:
                left.popleft()
                if key in entries:
                    yield key, _facts(entries[key])
            if len(passed) < _FEWEST:
                break


def _deleted(
    filesystem: Any, bucket: str, keys: Mapping[str, str]
) -> Iterator[tuple[str, StorageFacts]]:
    names = list(keys)
    for start in range(0, len(names), PAGE):
        page = names[start : start + PAGE]
        objects = [{"Key": key} for key in page]
        done = filesystem.call_s3(
            "delete_objects", Bucket=bucket, Delete={"Objects": objects, "Quiet": True}
        )
        kept = {error.get("Key") for error in done.get("Errors", ())}
        yield from ((key, StorageFacts(0)) for key in page if key not in kept)
    filesystem.invalidate_cache()
