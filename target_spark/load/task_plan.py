"""The files of each task: small files together, large ones in parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from shared.engine.weights import COMPRESSED
from shared.formats.file_formats import FORMATS
from shared.formats.row_groups import ROW_GROUPS
from shared.storage.files import StorageOptions, codec_of
from target_spark.core.load_plans import InputFile
from target_spark.load.read_rows import Piece

TASK_BYTES = 64 * 1024 * 1024
"""Input bytes that one task reads and writes into one file."""

LEAST_BYTES = 16 * 1024 * 1024
"""Input bytes below which a task is not split further to keep all cores busy."""

MOST_SHARES = 4
"""Tasks that share a compressed file; each must decompress it up to its own share."""

_SPLIT_SHARE = 1.5


def plan_tasks(
    files: Sequence[InputFile],
    size_of: Callable[[str], int],
    task_bytes: int = TASK_BYTES,
    options: StorageOptions | None = None,
    cores: int = 1,
) -> tuple[tuple[Piece, ...], ...]:
    """Group files into tasks of about `task_bytes` at most, in order.

    Files of lines above 1.5 times that size are split by bytes, columnar files by row groups.
    Several files, and row groups of one, are distributed evenly over enough tasks to keep all cores
    busy.

    Args:
        files: The files to read.
        size_of: Returns the bytes of a file whose size is unknown.
        task_bytes: Input bytes of a task.
        options: Options of the storage.
        cores: Number of tasks that can run at a time, as far as known.

    Raises:
        OSError: A file that may be split cannot be opened.
    """
    sizes = [size_of(file.url) if file.size is None else file.size for file in files]
    group_bytes = math.ceil(_share(sum(sizes), task_bytes, cores))
    pieces = [
        piece
        for file, size in zip(files, sizes, strict=True)
        for piece in _pieces(file, size, task_bytes, group_bytes, options)
    ]
    share = _share(sum(size for _, size in pieces), task_bytes, cores)
    tasks: dict[int, list[Piece]] = {}
    before = 0
    for piece, piece_bytes in pieces:
        middle = before + piece_bytes / 2
        tasks.setdefault(int(middle / share), []).append(piece)
        before += piece_bytes
    return tuple(map(tuple, tasks.values()))


def _share(total: int, task_bytes: int, cores: int) -> float:
    """Return bytes of each task: equally many tasks per core, unless these become too small."""
    rounds = -(-total // (task_bytes * cores))
    least = -(-total // task_bytes)
    count = min(rounds * cores, max(least, total // LEAST_BYTES))
    return max(1, total) / max(1, count)


def _pieces(
    file: InputFile, size: int, task_bytes: int, group_bytes: int, options: StorageOptions | None
) -> Iterator[tuple[Piece, int]]:
    form = file.encoding.format
    if form in ROW_GROUPS:
        task_bytes = group_bytes
    elif form == "jsonl" and file.encoding.compression != "none":
        task_bytes //= COMPRESSED
    if size <= task_bytes * _SPLIT_SHARE:
        yield Piece(file), size
    elif form in ROW_GROUPS:
        yield from _groups(file, size, task_bytes, options)
    elif FORMATS[form].text:
        packed = form == "jsonl" and codec_of(file.url, options) is not None
        count = min(-(-size // task_bytes), MOST_SHARES if packed else size)
        step = -(-size // count)
        for start in range(0, size, step):
            length = min(step, size - start)
            yield Piece(file, start, length), length * (COMPRESSED if packed else 1)
    else:
        yield Piece(file), size


def _groups(
    file: InputFile, size: int, task_bytes: int, options: StorageOptions | None
) -> Iterator[tuple[Piece, int]]:
    """Yield groups of consecutive row groups of about the size of a task."""
    groups = ROW_GROUPS[file.encoding.format].group_sizes(file.url, options)
    if len(groups) < 2:  # noqa: PLR2004
        yield Piece(file), size
        return
    share = size / -(-size // task_bytes)
    first = first_row = held = rows = 0
    for number, (group_bytes, group_rows) in enumerate(groups):
        held, rows = held + group_bytes, rows + group_rows
        if held >= share or number == len(groups) - 1:
            yield Piece(file, first, number + 1 - first, first_row), held
            first, first_row, held = number + 1, rows, 0
