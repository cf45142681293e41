"""The limit of the engine: its settings, and what work costs in bytes of plain text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.settings.checking import FORMER
from shared.settings.kinds import at_least, one_of, setting

if TYPE_CHECKING:
    from shared.formats.file_formats import Encoding


AUTO, SPARK, THREADS = ENGINES = ("auto", "spark", "threads")
SPARK_ABOVE = 256 * 1024 * 1024


@dataclass(frozen=True)
class EngineSettings:
    """Where work on rows takes place."""

    engine: str = setting(
        {**one_of(ENGINES), FORMER: ["load_without_spark"]},
        "Where work on rows takes place: `spark`: always on Spark; `threads`: in threads of this "
        "program, which never starts Java; `auto`: in threads up to `spark_above`, then on Spark. "
        "See `singer-spark docs engines`.",
        default=AUTO,
    )
    spark_above: int = setting(
        at_least(0),
        "Bytes of text in a run up to which threads do the work, with `engine: auto`; four times "
        "as many of columnar files. See `singer-spark docs engines`.",
        default=SPARK_ABOVE,
    )


COLUMNAR = 0.25
"""A byte of Parquet, ORC, Avro or Arrow."""
COMPRESSED = 3
"""A byte of compressed text: it holds about three."""
IN_PYTHON = 16
"""A byte whose records Python evaluates one by one, as some stream maps need it: ten maps of 40,000
records take 1.5 seconds."""
IN_PYTHON_COLUMNAR = 64
"""The same for columnar files, which have more records in as many bytes."""
JSON_VALUES = 32
"""A byte of JSON lines that the tap reads: 8 MiB take a second."""


def weight(encoding: Encoding, *, in_python: bool = False) -> float:
    """Return the work of a byte of a file, in bytes of plain text.

    Args:
        encoding: The encoding of the file.
        in_python: Whether Python evaluates an expression for each record.
    """
    from shared.formats.file_formats import FORMATS  # noqa: PLC0415

    if not FORMATS[encoding.format].text:
        return IN_PYTHON_COLUMNAR if in_python else COLUMNAR
    packed = 1 if encoding.compression == "none" else COMPRESSED
    return packed * (IN_PYTHON if in_python else 1)
