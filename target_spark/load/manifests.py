"""Files named by BATCH messages: their real paths, and whether they may be read.

A path is used unchanged, relative ones from the working folder; `..` and symbolic links are
resolved before anything is compared (`shared.storage.roots`). A file may be listed once in a
message and once among the messages that are committed together; if it is listed again later, it is
loaded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.errors import MessageError, SettingsError, Where
from shared.formats.file_formats import BATCH_FORMATS, FORMATS
from shared.settings.batch.batch_settings import BatchConfig
from shared.storage.files import StorageOptions
from shared.storage.roots import Roots, place
from shared.storage.urls import local_path, shown
from target_spark.core.load_plans import STAGED, InputFile

if TYPE_CHECKING:
    from target_spark.run_settings import TargetConfig


def resolve(
    files: Sequence[InputFile], stream: str, allowed_roots: Sequence[str] | None = None
) -> tuple[InputFile, ...]:
    """Return the files with absolute paths; staged ones stay unchanged.

    Args:
        files: Files of one message, or of several that are loaded together.
        stream: Name of the stream, for errors.
        allowed_roots: Folders or URLs that must contain the files; None allows any.

    Raises:
        MessageError: A file is rejected; names the stream and the first such file.
    """
    roots = None if allowed_roots is None else Roots(allowed_roots)
    found = tuple(
        file if file.encoding.format == STAGED else _resolved(file, stream, roots) for file in files
    )
    reject_duplicates(found, stream)
    return found


def reject_duplicates(files: Iterable[InputFile], stream: str) -> None:
    """Reject files that contain a duplicate.

    Raises:
        MessageError: A file is listed twice; names it.
    """
    seen: set[str] = set()
    for file in files:
        found = place(file.url)
        if file.encoding.format != STAGED and found in seen:
            raise MessageError(
                "the file is listed twice; its rows would be loaded twice",
                where=Where(stream=stream, file=shown(file.url)),
            )
        seen.add(found)


def _resolved(file: InputFile, stream: str, roots: Roots | None) -> InputFile:
    where = Where(stream=stream, file=shown(file.url))
    if file.encoding.format not in BATCH_FORMATS:
        raise MessageError(
            f"unknown batch file format '{file.encoding.format}'",
            where=where,
            hint=f"known are {', '.join(BATCH_FORMATS)}",
        )
    if missing := FORMATS[file.encoding.format].missing():
        raise SettingsError(missing, where=where)
    found = place(file.url)
    if roots is not None and not roots.hold(file.url):
        raise MessageError(
            "the file is outside of batch_config.allowed_roots",
            where=where,
            hint=f"its path with `..` and links resolved is {shown(found)}",
        )
    return replace(file, url=found if local_path(file.url) is not None else file.url)


def roots_of(config: BatchConfig) -> Roots:
    """Return the folders whose batch files the target deletes if it cleans up."""
    return Roots([*([config.root] if config.root else []), *(config.allowed_roots or ())])


def batch_options(config: TargetConfig) -> StorageOptions:
    """Return options for batch files, only for hosts and buckets that the settings name."""
    batch = config.batch_config or BatchConfig()
    named = [batch.root, *(batch.allowed_roots or ()), config.path]
    reach = Roots([url for url in named if url])
    bound = None if batch.allowed_roots is None else Roots(batch.allowed_roots)
    return StorageOptions(batch.options, reach, bound)
