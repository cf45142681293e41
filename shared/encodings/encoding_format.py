"""Encodings of files: how each declares itself, the table of all, and those of installed packages.

A declaration is plain data, and the place of the code that reads and writes. Other packages add
sources, destinations and encodings by entry points.

Declarations are imported by every run of a program, `--help` included, so their modules do not
import PyArrow at their top.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar, cast

from shared.errors import InvalidSettingsError
from shared.storage.access import StorageOptions

if TYPE_CHECKING:
    import pyarrow as pa


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

    def extension(self, compression: str) -> str:
        """Return how names of files end that have this compression."""
        return self.suffix + (SUFFIXES[compression] if self.packed else "")

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec.read`."""
        return self._codec.read(url, options)

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
        levels = () if level is None else (level,)
        self._codec.write(url, schema, tables, compression, options, *levels)

    def missing(self) -> str | None:
        """Return what to install before its files can be read and written; None if nothing."""
        for module, package in self.requires.items():
            if find_spec(module) is None:
                return f"{self.name} needs the package {module}: pip install '{package}'"
        return None

    @cached_property
    def _codec(self) -> Codec:
        if missing := self.missing():
            raise OSError(missing)
        return cast("type[Codec]", imported(self.implementation))()


def _problems(form: EncodingFormat) -> Iterator[str]:
    if form.implementation.count(":") != 1:
        yield f"'implementation' is '{form.implementation}', not package.module:Class"
    for name in (form.default_compression, form.batch_compression, *form.levels):
        if name is not None and name not in form.compressions:
            yield f"'{name}' is not one of its compressions"
    unknown = [name for name in form.compressions if name not in SUFFIXES]
    if form.packed and unknown:
        yield f"files cannot be compressed as a whole by '{unknown[0]}'"


_logger = logging.getLogger(__name__)

SOURCES = "singer_spark.sources"
DESTINATIONS = "singer_spark.destinations"
ENCODINGS = "singer_spark.encodings"
OURS = "singer-spark"
SWITCH = "SINGER_SPARK_EXTENSIONS"
"""Environment variable that leaves installed packages out if it is `off`."""


class Named(Protocol):
    """A declaration that an entry point names."""

    @property
    def name(self) -> str:
        """Return the name under which users know it, which is that of its entry point."""
        ...


Item = TypeVar("Item", bound=Named)


@dataclass(frozen=True)
class Declared(Generic[Item]):
    """Everything of one kind that is declared.

    Attributes:
        items: Declarations by name, those of this package first.
        packages: For each name of another package, the package with its version.
        unusable: Name of an entry point → why it cannot be used, one line per package. The name may
            be in `items`, too: of another package.
    """

    items: Mapping[str, Item]
    packages: Mapping[str, str]
    unusable: Mapping[str, tuple[str, ...]]

    @property
    def problems(self) -> tuple[str, ...]:
        """Return a line for each entry point that cannot be used."""
        return tuple(line for lines in self.unusable.values() for line in lines)

    def check(self) -> None:
        """Raise an error if an entry point cannot be used.

        Raises:
            InvalidSettingsError: With every problem.
        """
        if self.unusable:
            raise InvalidSettingsError(self.problems)


def imported(place: str) -> object:
    """Import an object by its place, `package.module:name`.

    Raises:
        ImportError, AttributeError: It is not there.
    """
    module, _, name = place.partition(":")
    loaded: object = getattr(import_module(module), name)
    return loaded


def declared(
    group: str,
    kind: type[Item],
    ours: Mapping[str, Item],
    clash: Callable[[Item, Mapping[str, Item]], str | None] | None = None,
) -> Declared[Item]:
    """Add the declarations of installed packages to those of this package; never fail.

    Args:
        group: Name of the group of entry points.
        kind: The class of the declarations.
        ours: Those of this package, by name.
        clash: Says why a declaration cannot be used beside the known ones; None if it can.
    """
    items, packages = dict(ours), dict[str, str]()
    unusable: dict[str, tuple[str, ...]] = {}
    for point, package in _entry_points(group):
        try:
            if point.name in items:
                owner = packages.get(point.name, OURS)
                raise _RefusedError(f"the package '{owner}' has that name already")
            item = _loaded(point, kind)
            reason = clash(item, items) if clash is not None else None
            if reason is not None:
                raise _RefusedError(reason)
        except _RefusedError as error:
            place = f"package '{package}', entry point '{point.name}' of {group}"
            line = f"{place}: {error}; correct or uninstall the package"
            unusable[point.name] = (*unusable.get(point.name, ()), line)
            continue
        items[item.name] = item
        packages[item.name] = package
    return Declared(items, packages, unusable)


class _RefusedError(Exception):
    """Why an entry point cannot be used."""


def _loaded(point: metadata.EntryPoint, kind: type[Item]) -> Item:
    try:
        item = point.load()
    except (Exception, SystemExit) as error:
        _logger.debug("cannot import %s", point.value, exc_info=True)
        text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
        raise _RefusedError(f"cannot import '{point.value}': {text}") from error
    if not isinstance(item, kind):
        raise _RefusedError(f"'{point.value}' is a {type(item).__name__}, not a {kind.__name__}")
    if item.name != point.name:
        raise _RefusedError(f"it declares the name '{item.name}', not '{point.name}'")
    return item


def _entry_points(group: str) -> Iterator[tuple[metadata.EntryPoint, str]]:
    """Yield entry points with the package each is of, in the same order on every machine."""
    if os.environ.get(SWITCH) == "off":
        return
    declared = []
    for point in metadata.entry_points(group=group):
        dist = point.dist
        package = f"{dist.metadata['Name']} {dist.version}" if dist is not None else "unknown"
        declared.append((package, point.name, point))
    for package, _, point in sorted(declared, key=lambda one: one[:2]):
        yield point, package


_JSONL = EncodingFormat(
    name="jsonl",
    implementation="shared.formats.line_encodings:LineFormat",
    suffix=".json",
    compressions=PACKINGS,
    levels={"gzip": 9},
    batch_compression="gzip",
    rows="lines",
    packed=True,
)
_BUILT_IN = (
    replace(_JSONL, name="singer", suffix=".singer", batch_compression=None),
    _JSONL,
    replace(_JSONL, name="json", batch_compression=None),
    EncodingFormat(
        name="parquet",
        implementation="shared.formats.columnar_encoding:ParquetFormat",
        suffix=".parquet",
        compressions=("none", "snappy", "gzip", "zstd", "lz4"),
        levels={"gzip": 9, "zstd": 22},
        default_compression="snappy",
        batch_compression="snappy",
    ),
    EncodingFormat(
        name="orc",
        implementation="shared.formats.columnar_encoding:OrcFormat",
        suffix=".orc",
        compressions=("none", "snappy", "zstd", "zlib", "lz4"),
        default_compression="snappy",
        batch_compression=None,
    ),
    EncodingFormat(
        name="csv",
        implementation="shared.formats.csv_encoding:CsvFormat",
        suffix=".csv",
        compressions=PACKINGS,
        levels={"gzip": 9},
        batch_compression="gzip",
        rows="texts",
        packed=True,
    ),
    EncodingFormat(
        name="avro",
        implementation="shared.formats.avro_encoding:AvroFormat",
        suffix=".avro",
        compressions=("none", "snappy", "deflate", "zstd"),
        default_compression="deflate",
        batch_compression="deflate",
        requires={"fastavro": "singer-spark[avro]", "cramjam": "singer-spark[avro]"},
    ),
    EncodingFormat(
        name="arrow",
        implementation="shared.formats.arrow_encoding:ArrowFormat",
        suffix=".arrow",
        compressions=("none", "lz4", "zstd"),
        levels={"zstd": 22},
        batch_compression="lz4",
    ),
)
BUILT_IN = {form.name: form for form in _BUILT_IN}
"""The encodings of this package."""


@cache
def declared_encodings() -> Declared[EncodingFormat]:
    """Return the encodings of this package and of others; its `check` says which are unusable."""
    return declared(ENCODINGS, EncodingFormat, BUILT_IN)


class _Formats(Mapping[str, EncodingFormat]):
    """All encodings; those of this package are found without a search of installed packages.

    Executors start a process for many tasks, and such a search takes as long as a small file.
    """

    def __getitem__(self, name: str) -> EncodingFormat:
        return BUILT_IN[name] if name in BUILT_IN else declared_encodings().items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(declared_encodings().items)

    def __len__(self) -> int:
        return len(declared_encodings().items)


FORMATS: Mapping[str, EncodingFormat] = _Formats()
"""Every encoding by its name in an `Encoding`."""


def batch_formats() -> dict[str, EncodingFormat]:
    """Return the encodings that BATCH messages may name."""
    return {name: form for name, form in FORMATS.items() if form.batch_compression is not None}


def added_text() -> str:
    """Return a sentence with the encodings of installed packages; empty if there are none."""
    packages = declared_encodings().packages
    names = (f"`{name}` ({packages[name]})" for name in batch_formats() if name in packages)
    text = ", ".join(names)
    return f" Of installed packages: {text}." if text else ""


class GroupedEncoding(Protocol):
    """The module of an encoding whose files consist of groups of rows."""

    def read_groups(
        self, url: str, groups: range | None, options: StorageOptions | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of some groups (None: all), in bounded tables."""
        ...

    def group_sizes(self, url: str, options: StorageOptions | None = None) -> list[tuple[int, int]]:
        """Return bytes and rows of each group; empty if the file is not of this encoding."""
        ...


GROUPED = {"parquet": "row_groups", "arrow": "arrow_encoding"}
"""The encodings that have groups, and their modules, which are imported with the first file."""


def grouped_encoding(name: str) -> GroupedEncoding:
    """Return the module of an encoding that has groups."""
    return cast("GroupedEncoding", import_module(f"shared.formats.{GROUPED[name]}"))
