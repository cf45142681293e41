"""Access to storage: its options and failures, and what needs no open file. Imports no PyArrow.

Used on the driver and on the executors; imports fsspec only for URLs that need it. Credentials of
`s3://` are found as every AWS SDK finds them (environment, profiles, roles), or given as options.
A client of web servers follows redirects only to places that the settings allow.
`shared.storage.files` opens files.

Packages of object stores raise errors of their own, or OSErrors without a number. Callers need the
number: it separates temporary failures from permanent ones, and selects the hint.

S3 lists and deletes a thousand objects by one request. Whatever it refuses so, and other storages,
get one request for each file, of which some wait at the same time.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

from shared.errors import causes, may_pass
from shared.storage.urls import S3_SCHEMES, Roots, local_path, shown

NO_SUCH_HOST = errno.ENXIO
"""Number of a host name that nobody has; EHOSTUNREACH if name servers do not answer."""
NO_SUCH_SCHEME = errno.EPROTONOSUPPORT
"""Number of a scheme without a package, or with options that it does not take."""

_CODES = {
    errno.ENOENT: r"NoSuchBucket|NoSuchKey|404",
    errno.EACCES: r"AccessDenied|AllAccessDisabled|AccountProblem|Forbidden|401|403"
    r"|SignatureDoesNotMatch|InvalidAccessKeyId|XAdminUserNotFound|\w*Token\w*|InvalidSecurity"
    r"|NotSignedUp|RequestTimeTooSkewed|UnauthorizedAccess",
    errno.EBUSY: r"SlowDown|\w*Throttl\w*|TooManyRequests\w*|RequestLimitExceeded"
    r"|ServiceUnavailable|BandwidthLimitExceeded|OperationAborted|NoSuchUpload|409|429|503",
    errno.EIO: r"InternalError|500|502|504",
    errno.ETIMEDOUT: r"RequestTimeout",
}
"""Codes of S3's answers; any other is taken for one that lasts."""

_CREDENTIALS = re.compile(r"Credential|ProfileNotFound|InvalidConfigError|SSO|UnauthorizedError")
_NO_CONNECTION = re.compile(
    r"EndpointConnection|ClientConnector|ConnectionClosed|ConnectTimeout|ReadTimeout|ServerTimeout"
    r"|ServerDisconnected|ClientOSError|ClientPayloadError|IncompleteRead|HTTPClientError"
    r"|ResponseStreamingError|gaierror"
)
_BY_CLASS = {
    FileNotFoundError: errno.ENOENT,
    PermissionError: errno.EACCES,
    TimeoutError: errno.ETIMEDOUT,
    ConnectionRefusedError: errno.ECONNREFUSED,
    ConnectionError: errno.ECONNRESET,
}
_CONNECT = "check the endpoint (`endpoint_url` or AWS_ENDPOINT_URL) and the network"
_HINTS = {
    errno.ENOENT: "check the bucket and the path; a bucket is never created",
    errno.EACCES: "check the credentials (`singer-spark docs s3`) and what they are allowed",
    errno.EPERM: "check the credentials (`singer-spark docs s3`) and what they are allowed",
    errno.EBUSY: "the storage asks for fewer requests; try again later",
    NO_SUCH_HOST: "check the host's name in the endpoint (`endpoint_url` or AWS_ENDPOINT_URL)",
    NO_SUCH_SCHEME: "check the scheme of the URL, its options, and that its package is installed",
    errno.EIO: "the storage has failed by itself; try again later",
    **dict.fromkeys(
        (errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH), _CONNECT
    ),
}
_ABOUT_ONE_FILE = frozenset(
    {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EINVAL, NO_SUCH_SCHEME}
)


def storage_error(error: BaseException, place: str, blot: str | None = None) -> OSError:
    """Return the failure of a remote storage as an OSError.

    Args:
        error: The exception of fsspec, or of a package below it.
        place: URL without secrets.
        blot: Its text without secrets, if that differs.

    Returns:
        An error with number, text and `place` if the number is known, so that it also has
        Python's class for the number; otherwise one with only a text.
    """
    if isinstance(error, OSError) and error.errno and error.filename == place:
        return error
    text = " ".join((str(error) if blot is None else blot).split())
    number, code = _number(error)
    if number is None:
        return OSError(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    plain = re.sub(r"^\[Errno -?\d+\] ", "", text)
    if isinstance(error, FileNotFoundError) and not code:
        plain = os.strerror(number)
    if number == errno.ECONNREFUSED:
        # In a failure of a job, those words mean that Spark itself has gone away.
        plain = plain.replace("Connection refused", "the connection was refused")
    if code and code not in plain:
        plain = f"{plain.rstrip('.')} ({code})"
    return OSError(number, plain or os.strerror(number), place)


def is_unknown_host(text: str) -> bool:
    """Return whether the system says of a host that its name does not exist."""
    return bool(
        re.search(r"Name or service not known|nodename nor servname|No address assoc", text)
    )


def storage_hint(number: int | None) -> str:
    """Return what a user can do about a failure of a remote storage."""
    return _HINTS.get(number or 0, "")


def is_trouble(error: BaseException) -> bool:
    """Return whether a failure concerns the storage as a whole, not only the requested file."""
    number = error.errno if isinstance(error, OSError) else None
    return number is not None and number not in _ABOUT_ONE_FILE


def _number(error: BaseException) -> tuple[int | None, str]:
    """Return the number of a failure, and the code that a server answered with."""
    chain = list(causes(error, suppressed=True))
    for cause in chain:
        code = answer_code(cause)
        if code:
            numbers = (number for number, codes in _CODES.items() if re.fullmatch(codes, code))
            return next(numbers, errno.EINVAL), code
    names = [kind.__name__ for cause in chain for kind in type(cause).__mro__]
    if any(map(_CREDENTIALS.search, names)):
        return errno.EACCES, ""
    if any(map(_NO_CONNECTION.search, names)):
        return _connection_number(chain), ""
    for cause in chain:
        if isinstance(cause, OSError):
            by_class = (number for kind, number in _BY_CLASS.items() if isinstance(cause, kind))
            return cause.errno or next(by_class, None), ""
    return None, ""


def answer_code(error: BaseException) -> str:
    """Return the code of the server's answer that an error of S3's client holds; else nothing."""
    response = getattr(error, "response", None)
    answer = response.get("Error") if isinstance(response, dict) else None
    return str(answer.get("Code") or "") if isinstance(answer, dict) else ""


def _connection_number(chain: list[BaseException]) -> int:
    names = [type(cause).__name__ for cause in chain]
    if any("Timeout" in name for name in names):
        return errno.ETIMEDOUT
    if any(name in {"gaierror", "ClientConnectorDNSError"} for name in names):
        is_unknown = any(map(is_unknown_host, map(str, chain)))
        return NO_SUCH_HOST if is_unknown else errno.EHOSTUNREACH
    refused = any(getattr(cause, "errno", None) == errno.ECONNREFUSED for cause in chain)
    return errno.ECONNREFUSED if refused else errno.ECONNRESET


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
_PUBLIC = re.compile(r"https?://[^@]*$")


def remote(url: str, options: StorageOptions | None = None) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path inside it.

    Raises:
        OSError: The package for the scheme is not installed, or does not support an option.
    """
    import fsspec  # noqa: PLC0415

    if "::" in url and url.startswith(S3_SCHEMES):  # fsspec would open the key before it.
        text = "a URL cannot name a key with '::', which joins file systems"
        raise OSError(errno.EINVAL, text, shown(url))
    options = options or NO_OPTIONS
    try:
        return fsspec.core.url_to_fs(url, **options.for_url(url))  # type: ignore[no-any-return]
    except (ImportError, ValueError, TypeError) as error:
        text = options.without_secrets(str(error))
        raise OSError(NO_SUCH_SCHEME, text, shown(url)) from None
    except Exception as error:
        raise _explained(error, url, options) from None


def open_remote(
    url: str, mode: str, options: StorageOptions | None = None, **more: Any
) -> RemoteFile:
    """Open a file by fsspec, for `rb` or `wb`: reading, writing and closing it explain failures.

    `more` are arguments of the file system.
    """
    filesystem, inside = remote(url, options)
    is_in_parts = mode == "wb" and url.startswith(S3_SCHEMES)
    parts = {"block_size": S3_PART_BYTES} if is_in_parts else {}
    with failures(url, options):
        return RemoteFile(filesystem.open(inside, mode, **parts, **more), url, options)


class RemoteFile:
    """An open fsspec file with its failures explained, as Arrow takes a file."""

    def __init__(self, file: Any, url: str, options: StorageOptions | None) -> None:
        self._file = file
        self._url = url
        self._options = options

    @property
    def size(self) -> int:
        """Return its bytes, as the storage told them before it was opened for reading."""
        return int(self._file.size)

    @property
    def tag(self) -> str | None:
        """Return what changes with the content; None if the storage has no such tag."""
        tag = (getattr(self._file, "details", None) or {}).get("ETag")
        return None if tag is None else str(tag)

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def readable(self) -> bool:
        return bool(self._file.readable())

    def writable(self) -> bool:
        return bool(self._file.writable())

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def read(self, count: int = -1) -> Any:
        with failures(self._url, self._options):
            return self._file.read(count)

    def write(self, data: Any) -> Any:
        with failures(self._url, self._options):
            return self._file.write(data)

    def flush(self) -> None:
        with failures(self._url, self._options):
            self._file.flush()

    def close(self) -> None:
        with failures(self._url, self._options):
            self._file.close()


class SmallFiles:
    """Content of small remote files: each is fetched once, however often it is opened.

    A file is looked at for its compression, its columns and its rows, and maybe for its end: each
    would be a request. An object store tells by a tag whether the content is still the same.

    Args:
        longest: Bytes of a file that is kept.
        most: Bytes of all files that are kept; those opened long ago go first.
    """

    def __init__(self, longest: int = 64 << 10, most: int = 16 << 20) -> None:
        self._longest, self._most = longest, most
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def content(self, url: str, file: RemoteFile) -> bytes | None:
        """Return the content of an open file, and close it; None if it is not small."""
        if file.tag is None or file.size > self._longest:
            return None
        key = url, file.tag
        with self._lock:
            content = self._kept.get(key)
        if content is None:
            content = bytes(file.read())
        file.close()
        with self._lock:
            self._bytes += len(content) - len(self._kept.pop(key, b""))
            self._kept[key] = content
            while self._bytes > self._most:
                self._bytes -= len(self._kept.popitem(last=False)[1])
        return content


SMALL_FILES = SmallFiles()


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


def account_home() -> str:
    """Return the home of the account, as Java does, whatever HOME says.

    HOME counts if the account has none that it may write to, as in containers; else `~`.
    """
    with suppress(KeyError):
        home = pwd.getpwuid(os.getuid()).pw_dir
        if os.access(home, os.W_OK):
            return home
    return os.path.expanduser("~")  # noqa: PTH111 - never an error


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
        OSError: See `shared.storage.access.storage_error`.
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
    elif isinstance(values, str) and len(values) >= _SHORTEST_SECRET and not _PUBLIC.match(values):
        yield values


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
    """Remove files, if they exist; return those that cannot be removed, with the reason.

    After a failure that is transient, other remote files are not tried: each would wait for it.
    """
    far = [url for url in urls if local_path(url) is None]
    gone = _by_bucket(far, options, _deleted) if far else {}
    left = [url for url in urls if url not in gone]
    transient: list[OSError] = []

    def failure(url: str) -> OSError | None:
        if transient and local_path(url) is None:
            return transient[0]
        try:
            delete(url, options)
        except OSError as error:
            if may_pass(error):
                transient.append(error)
            return error
        return None

    # Local files go in no time: threads would take more than that.
    errors = _each(failure, left) if far else [*map(failure, left)]
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
