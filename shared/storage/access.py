"""Access to storage: its options and failures, and what needs no open file. Imports no PyArrow.

Used on the driver and on the executors; imports fsspec only for URLs that need it. Credentials of
`s3://` are found as every AWS SDK finds them (environment, profiles, roles), or given as options.
A client of web servers follows redirects only to places that the settings allow.
`shared.storage.files` opens files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from shared.errors import causes
from shared.storage.storage_errors import storage_error
from shared.storage.urls import S3_SCHEMES, local_path, shown

if TYPE_CHECKING:
    from shared.storage.urls import Roots


class RedirectRefusedError(OSError):
    """A server redirects to a place that the settings do not allow."""


@dataclass(frozen=True)
class GuardedClient:
    """Makes the session of an fsspec file system; file systems differ by its `repr`.

    Attributes:
        reach: Hosts that get what the session sends with each request; None for any.
        bound: Folders that files must be in; None for any.
    """

    reach: Roots | None
    bound: Roots | None

    async def __call__(self, **arguments: Any) -> Any:
        """Make one."""
        import aiohttp  # noqa: PLC0415

        trace = aiohttp.TraceConfig()
        trace.on_request_redirect.append(self._check)
        return aiohttp.ClientSession(**{**arguments, "trace_configs": [trace]})

    async def _check(self, _session: Any, _context: Any, params: Any) -> None:
        answer = params.response
        location = answer.headers.get("Location") or answer.headers.get("URI") or ""
        target = urljoin(str(answer.url), location)
        if (self.bound is None or self.bound.hold(target)) and (
            self.reach is None or self.reach.reach(target)
        ):
            return
        host = urlsplit(target).netloc.rpartition("@")[2]
        what = "outside of batch_config.allowed_roots" if self.bound else "without a root there"
        raise RedirectRefusedError(f"the server redirects to '{host}', {what}")


S3_PART_BYTES = 16 * 1024 * 1024
"""Bytes that are uploaded at once; ten thousand parts make the largest file: 160 GB."""


class StorageOptions:
    """fsspec options, which may hold secrets: `repr`, `str` and errors never show a value.

    Picklable, so that executors get them. `endpoint_url` and the AWS names `region_name`,
    `aws_access_key_id`, `aws_secret_access_key`, `aws_session_token` and `profile_name` are taken
    for `s3://` beside the names that s3fs has.

    Args:
        values: The options.
        reach: They are sent to these hosts and buckets alone; None for any.
        bound: Web servers may lead on to these folders alone; None for anywhere.
    """

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        reach: Roots | None = None,
        bound: Roots | None = None,
    ) -> None:
        self._values = dict(values or {})
        self._reach = reach
        self._bound = bound

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(sorted(self._values))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageOptions) and other._values == self._values

    def __hash__(self) -> int:
        return hash(frozenset(self._values))

    def for_url(self, url: str) -> dict[str, Any]:
        """Return the keyword arguments of the file system that a URL names."""
        values = {} if self.are_kept_from(url) else dict(self._values)
        if url.lower().startswith(("http:", "https:")):
            client = GuardedClient(self._reach if values else None, self._bound)
            return {**values, "get_client": client}
        return _s3_options(values) if url.startswith(S3_SCHEMES) else values

    def are_kept_from(self, url: str) -> bool:
        """Return whether a URL gets no options because the settings do not name its host."""
        is_remote = local_path(url) is None
        return bool(
            self._values and is_remote and self._reach is not None and not self._reach.reach(url)
        )

    def without_secrets(self, text: str) -> str:
        """Return a text of another program with the values of the options masked."""
        for value in sorted(_texts(self._values), key=len, reverse=True):
            text = text.replace(value, "***")
        return text


NO_OPTIONS = StorageOptions()
_AWS_NAMES = {
    "aws_access_key_id": "key",
    "aws_secret_access_key": "secret",
    "aws_session_token": "token",
    "profile_name": "profile",
}
_SHORTEST_SECRET = 6


def remote(url: str, options: StorageOptions | None = None) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path inside it.

    Raises:
        OSError: The package for the scheme is not installed, or does not support an option.
    """
    import fsspec  # noqa: PLC0415

    options = options or NO_OPTIONS
    try:
        return fsspec.core.url_to_fs(url, **options.for_url(url))  # type: ignore[no-any-return]
    except (ImportError, ValueError, TypeError) as error:
        raise OSError(f"{options.without_secrets(str(error))} (for {shown(url)})") from None
    except Exception as error:
        raise _explained(error, url, options) from None


def size_of(url: str, options: StorageOptions | None = None) -> int:
    """Return the size of a file in bytes."""
    path = local_path(url)
    if path is not None:
        return Path(path).stat().st_size
    filesystem, inside = remote(url, options)
    with failures(url, options):
        return int(filesystem.size(inside))


def delete(url: str, options: StorageOptions | None = None) -> None:
    """Remove a file, if it exists."""
    path = local_path(url)
    if path is not None:
        Path(path).unlink(missing_ok=True)
        return
    filesystem, inside = remote(url, options)
    with failures(url, options):
        try:
            filesystem.rm_file(inside)
        except FileNotFoundError:
            return


def make_durable(url: str) -> None:
    """Force a finished local file or folder to disk; object stores are durable once closed."""
    path = local_path(url)
    if path is None:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def failures(url: str, options: StorageOptions | None = None) -> Iterator[None]:
    """Raise failures of a remote storage as OSErrors with the URL, without values of options.

    Raises:
        OSError: See `shared.storage.storage_errors.storage_error`.
    """
    try:
        yield
    except Exception as error:
        # The cause is left out: it may hold secrets, and executors would print it.
        raise _explained(error, url, options) from None


def _explained(error: BaseException, url: str, options: StorageOptions | None) -> OSError:
    for cause in causes(error, suppressed=True):
        if isinstance(cause, RedirectRefusedError):
            return OSError(str(cause))
    clean = (options or NO_OPTIONS).without_secrets(str(error))
    return storage_error(error, shown(url), clean)


def part_size(url: str) -> dict[str, int]:
    return {"block_size": S3_PART_BYTES} if url.startswith(S3_SCHEMES) else {}


def _s3_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for s3fs, from its own names and those of the AWS SDKs."""
    options = {_AWS_NAMES.get(name, name): value for name, value in values.items()}
    region = options.pop("region_name", options.pop("region", None))
    if region is not None:
        options["client_kwargs"] = {"region_name": region, **options.get("client_kwargs", {})}
    return options


def _texts(values: Any) -> Iterator[str]:
    """Return every text within options that is long enough not to be an ordinary word."""
    if isinstance(values, Mapping):
        for value in values.values():
            yield from _texts(value)
    elif isinstance(values, str) and len(values) >= _SHORTEST_SECRET and not _is_public(values):
        yield values


def _is_public(text: str) -> bool:
    return re.match(r"https?://[^@]*$", text) is not None
