"""How an encoding of files declares itself: plain data, and the way to what reads and writes.

Declarations are imported by every run of a program, `--help` included, so their modules do not
import PyArrow at their top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, Protocol, cast

from shared.encodings.extensions import imported

if TYPE_CHECKING:
    import pyarrow as pa

    from shared.storage.access import StorageOptions

SUFFIXES = {"none": "", "gzip": ".gz", "zstd": ".zst", "bzip2": ".bz2"}
"""How names of files end that are compressed as a whole."""

PACKINGS = tuple(SUFFIXES)


@dataclass(frozen=True)
class Encoding:
    """Format and compression of a file, as in the `encoding` of a BATCH message.

    Attributes:
        format: A key of the registry: `singer` (staged RECORD lines), `jsonl`, `parquet`, ...
        compression: `none`, `gzip`, `zstd`, `snappy`, ...
    """

    format: str
    compression: str = "none"


class Codec(Protocol):
    """What reads and writes the files of an encoding, on the executors and the driver alike."""

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """Yield the rows of a file in bounded tables.

        Raises:
            OSError: The file cannot be opened.
            pyarrow.ArrowInvalid: It is not of this encoding (`ContentError`), or damaged.
        """
        ...

    def write(
        self,
        url: str,
        schema: pa.Schema,
        tables: Iterable[pa.Table],
        compression: str,
        options: StorageOptions | None = None,
        level: int | None = None,
    ) -> None:
        """Create a file with the rows of all tables, which have this schema.

        `level`, of the compression, is given only if the encoding declares `levels`.

        Raises:
            OSError: The file cannot be written.
        """
        ...


@dataclass(frozen=True)
class EncodingFormat:
    """One encoding of files.

    Attributes:
        name: Its name in the settings and in the `encoding` of a BATCH message.
        implementation: `package.module:Class` of the `Codec`; imported with the first file.
        suffix: How names of its files end.
        compressions: The compressions that they may have.
        default_compression: That of table files, unless the settings name one.
        levels: For compressions that have levels, the highest; the lowest is 1.
        batch_compression: That of batch files; None if BATCH messages may not name the encoding.
        rows: What `read` yields: typed columns (`tables`), columns of text (`texts`, which are
            also written without nested columns), or one column of whole JSON lines (`lines`).
        packed: Files are compressed as a whole, and their names say so (`.json.gz`).
        requires: Python packages it needs: module, and its requirement for `pip install`.

    Raises:
        ValueError: It contradicts itself.
    """

    name: str
    implementation: str
    suffix: str
    compressions: tuple[str, ...] = ("none",)
    default_compression: str = "none"
    levels: Mapping[str, int] = field(default_factory=dict)
    batch_compression: str | None = "none"
    rows: Literal["tables", "texts", "lines"] = "tables"
    packed: bool = False
    requires: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ValueError(f"encoding '{self.name}': {problem}")

    @property
    def text(self) -> bool:
        """Return whether rows are lines of text."""
        return self.rows == "lines"

    @property
    def flat(self) -> bool:
        """Return whether all columns are text in the files, nested ones as JSON."""
        return self.rows == "texts"

    def extension(self, compression: str) -> str:
        """Return how names of files end that have this compression."""
        return self.suffix + (SUFFIXES[compression] if self.packed else "")

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec.read`."""
        return self._codec().read(url, options)

    def write(
        self,
        url: str,
        schema: pa.Schema,
        tables: Iterable[pa.Table],
        compression: str,
        options: StorageOptions | None = None,
        level: int | None = None,
    ) -> None:
        """See `Codec.write`."""
        if level is None:
            self._codec().write(url, schema, tables, compression, options)
        else:
            self._codec().write(url, schema, tables, compression, options, level)

    def missing(self) -> str | None:
        """Return what to install before its files can be read and written; None if nothing."""
        for module, package in self.requires.items():
            if find_spec(module) is None:
                return f"{self.name} needs the package {module}: pip install '{package}'"
        return None

    def _codec(self) -> Codec:
        if missing := self.missing():
            raise OSError(missing)
        return _codec_of(self.implementation)


@cache
def _codec_of(implementation: str) -> Codec:
    return cast("Callable[[], Codec]", imported(implementation))()


def _problems(form: EncodingFormat) -> Iterator[str]:
    if form.implementation.count(":") != 1:
        yield f"'implementation' is '{form.implementation}', not package.module:Class"
    for name in (form.default_compression, form.batch_compression, *form.levels):
        if name is not None and name not in form.compressions:
            yield f"'{name}' is not one of its compressions"
    unknown = [name for name in form.compressions if name not in SUFFIXES]
    if form.packed and unknown:
        yield f"files cannot be compressed as a whole by '{unknown[0]}'"
