"""All encodings: those of this package, and those of installed packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from shared import extensions
from shared.encodings.encoding_format import EncodingFormat

PLACES = (
    *("lines:SINGER", "lines:JSONL", "lines:JSON"),
    *("parquet:ENCODING", "orc:ENCODING", "csv:ENCODING", "avro:ENCODING", "arrow:ENCODING"),
)
BUILT_IN = extensions.built_in(
    EncodingFormat, (f"shared.encodings.declared.{place}" for place in PLACES)
)
"""The encodings of this package; a further one is a module of `declared` and a place above."""


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
