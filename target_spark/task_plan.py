"""Which task reads what: small files together, large files of lines in ranges. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from shared.storage import codec_of, local_path
from target_spark.load_tasks import Piece
from target_spark.plans import InputFile

TASK_BYTES = 64 * 1024 * 1024
"""Input bytes that one task reads and writes into one file."""

_SPLIT_SHARE = 1.5


def plan_tasks(
    files: Sequence[InputFile], size_of: Callable[[str], int], task_bytes: int = TASK_BYTES
) -> tuple[tuple[Piece, ...], ...]:
    """Groups files into tasks of about `task_bytes`, keeping their order.

    Args:
        files: What is to be read.
        size_of: Bytes of a file, asked where a file does not say.
        task_bytes: Input bytes of a task; files of plain lines above 1.5 times that are split.
    """
    tasks: list[tuple[Piece, ...]] = []
    held: list[Piece] = []
    held_bytes = 0
    for file in files:
        size = size_of(file.url) if file.size is None else file.size
        for piece, piece_bytes in _pieces(file, size, task_bytes):
            if held and held_bytes + piece_bytes > task_bytes:
                tasks.append(tuple(held))
                held, held_bytes = [], 0
            held.append(piece)
            held_bytes += piece_bytes
    return (*tasks, tuple(held)) if held else tuple(tasks)


def _pieces(file: InputFile, size: int, task_bytes: int) -> Iterator[tuple[Piece, int]]:
    lines = file.encoding.format in {"singer", "jsonl"} and file.encoding.compression == "none"
    large = size > task_bytes * _SPLIT_SHARE and local_path(file.url) is not None
    if not lines or not large or (Path(file.url).exists() and codec_of(file.url)):
        yield Piece(file), size
        return
    count = -(-size // task_bytes)
    step = -(-size // count)
    for start in range(0, size, step):
        length = min(step, size - start)
        yield Piece(file, start, length), length
