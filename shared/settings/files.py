"""Settings files: JSON with comments, YAML and TOML, all read as JSON would have it.

They are read whole, up to a bound: a device never ends.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import sys
from collections.abc import Mapping
from datetime import date, time
from pathlib import Path
from typing import Any

from shared.settings.checking import Json

LARGEST = 256 << 20


def read_whole(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file or FIFO.

    Raises:
        OSError: It cannot be read, or is larger than `LARGEST` bytes.
    """
    with Path(path).open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(errno.EFBIG, f"it has more than {LARGEST >> 20} MiB", str(path))
    return content


FORMATS: Mapping[str, str] = {".json": "JSON", ".yaml": "YAML", ".yml": "YAML", ".toml": "TOML"}
"""Endings of settings files; every other file is read as JSON."""
SCHEMA_KEY = "$schema"

# A string of JSON has no line end, so that no valid document has such a line.
_COMMENT = re.compile(r"^[ \t]*//[^\r\n]*", re.MULTILINE)


def read_settings_file(path: Path) -> dict[str, Any]:
    """Read a file that holds one object of settings; the ending of its name tells the format.

    Args:
        path: The file.

    Returns:
        Its keys and values, of the types that JSON has. Leaves out `$schema`, which is for editors.

    Raises:
        ValueError: With what is wrong, and the line, in words that fit behind the file's name.
    """
    form = format_of(path)
    try:
        settings = _READERS[form](read_whole(path))
    except FileNotFoundError:
        raise ValueError("the file does not exist") from None
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ValueError(f"not valid {form}: not Unicode text") from None
    except RecursionError:
        raise ValueError(f"not valid {form}: nested too deeply") from None
    if isinstance(settings.get(SCHEMA_KEY), str):
        del settings[SCHEMA_KEY]
    return settings


def format_of(path: Path) -> str:
    """Return the format of a settings file: `JSON`, `YAML` or `TOML`."""
    return FORMATS.get(path.suffix.lower(), "JSON")


def json_object(data: bytes, *, unique_keys: bool = False) -> dict[str, Any]:
    """Read text that is one JSON object; lines that begin with `//` are comments.

    Args:
        data: The text, in an encoding of Unicode.
        unique_keys: Reject an object that gives a key twice; otherwise the last one counts.

    Raises:
        ValueError: With what is wrong, in one line.
    """
    pairs = _without_doubles if unique_keys else None
    try:
        text = _COMMENT.sub("", data.decode(json.detect_encoding(data), "surrogatepass"))
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=refuse_constant)
    except UnicodeDecodeError:
        raise ValueError("not valid JSON: not Unicode text") from None
    except RecursionError:
        raise ValueError("not valid JSON: nested too deeply") from None
    except json.JSONDecodeError as error:
        at = f"at line {error.lineno}, column {error.colno}"
        raise ValueError(f"not valid JSON: {error.msg} {at}") from None
    if not isinstance(value, dict):
        raise ValueError("must hold one JSON object")
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} is given twice in one object")
        result[key] = item
    return result


def refuse_constant(name: str) -> None:
    """Reject `NaN` and `Infinity`, which Python's JSON reader accepts."""
    raise ValueError(f"not valid JSON: {name} is not a JSON value")


def _yaml_object(data: bytes) -> dict[str, Any]:
    from shared.settings.yaml_text import yaml_value  # noqa: PLC0415

    value = yaml_value(data)
    if not isinstance(value, dict):
        raise ValueError("must hold one YAML mapping")
    return value


def _toml_object(data: bytes) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415
    else:
        import tomli as tomllib  # noqa: PLC0415

    try:
        document = tomllib.loads(data.decode("utf-8-sig"), parse_float=_finite)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not valid TOML: {error}") from None
    return dict(_without_dates(document))


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"not valid: {text} is not a number of JSON")
    return float(text)


def _without_dates(value: Json) -> Json:
    """Turn dates and times into their text, as settings have them."""
    if isinstance(value, dict):
        return {key: _without_dates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_dates(item) for item in value]
    return value.isoformat() if isinstance(value, (date, time)) else value


_READERS = {"JSON": json_object, "YAML": _yaml_object, "TOML": _toml_object}
