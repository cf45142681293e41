"""All encodings: one table of those of this package, and those of installed packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

from shared.encodings import extensions
from shared.encodings.encoding_format import PACKINGS, EncodingFormat

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
def _declared() -> extensions.Declared[EncodingFormat]:
    return extensions.declared(extensions.ENCODINGS, EncodingFormat, BUILT_IN)


class _Formats(Mapping[str, EncodingFormat]):
    """All encodings; those of this package are found without a search of installed packages.

    Executors start a process for many tasks, and such a search takes as long as a small file.
    """

    def __getitem__(self, name: str) -> EncodingFormat:
        return BUILT_IN[name] if name in BUILT_IN else _declared().items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_declared().items)

    def __len__(self) -> int:
        return len(_declared().items)


FORMATS: Mapping[str, EncodingFormat] = _Formats()
"""Every encoding by its name in an `Encoding`."""


def batch_formats() -> dict[str, EncodingFormat]:
    """Return the encodings that BATCH messages may name."""
    return {name: form for name, form in FORMATS.items() if form.batch_compression is not None}


def added_text() -> str:
    """Return a sentence with the encodings of installed packages; empty if there are none."""
    packages = _declared().packages
    names = (f"`{name}` ({packages[name]})" for name in batch_formats() if name in packages)
    text = ", ".join(names)
    return f" Of installed packages: {text}." if text else ""


def check_encodings() -> None:
    """Raise an error if an installed encoding cannot be used.

    Raises:
        InvalidSettingsError: With every problem.
    """
    _declared().check()
