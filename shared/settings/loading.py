"""Settings from files, the environment and `.env`, merged, with values from elsewhere.

Files are JSON with comments, YAML or TOML, all read as JSON would have it, whole and up to a bound:
a device never ends. Secrets stand elsewhere as `env:NAME`, `file:PATH`, `cmd:COMMAND`; `${NAME}` is
a part of a text.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, time
from functools import cache, partial, reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shared.errors import InvalidSettingsError
from shared.settings.checking import (
    Json,
    Location,
    Schema,
    below,
    holds_secret,
    nearest,
    setting_place,
)
from shared.settings.texts import hide

_log = logging.getLogger(__name__)

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

    Returns:
        Its keys and values, of the types that JSON has. Leaves out `$schema`, which is for editors.

    Raises:
        ValueError: With what is wrong, and the line, in words that fit behind the file's name.
    """
    form = settings_format(path)
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


def settings_format(path: Path) -> str:
    """Return the format of a settings file: `JSON`, `YAML` or `TOML`."""
    return FORMATS.get(path.suffix.lower(), "JSON")


def json_object(data: bytes) -> dict[str, Any]:
    """Read text, in an encoding of Unicode, that is one JSON object; reject a key given twice.

    Lines that begin with `//` are comments.

    Raises:
        ValueError: With what is wrong, in one line.
    """
    try:
        text = _COMMENT.sub("", data.decode(json.detect_encoding(data), "surrogatepass"))
        value = json.loads(text, **_STRICT)
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


_STRICT: Mapping[str, Any] = {
    "object_pairs_hook": _without_doubles,
    "parse_constant": refuse_constant,
}


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
    # Dates and times become text, as settings have them.
    return dict(
        _with_leaves(document, lambda v: v.isoformat() if isinstance(v, date | time) else v)
    )


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"not valid: {text} is not a number of JSON")
    return float(text)


def _with_leaves(value: Json, change: Callable[[Json], Json]) -> Json:
    """Change what is neither an object nor an array, at every depth."""
    if isinstance(value, Mapping):
        return {key: _with_leaves(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_leaves(item, change) for item in value]
    return change(value)


_READERS = {"JSON": json_object, "YAML": _yaml_object, "TOML": _toml_object}


Keys = tuple[str, ...]

KEEP = "x-as-it-is"
"""Marks an object that keeps its keys and nulls as they are."""

OTHER_VARIABLES = "x-other-variables"
"""Names, behind the prefix, of environment variables of a program that are not settings."""

ENV = "ENV"
DOTENV = Path(".env")

_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True}
_BOOLEANS |= {"false": False, "0": False, "no": False, "off": False}
_DOTENV_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][\w.]*)\s*=\s*(.*?)\s*$")
_DOTENV_NAME = re.compile(r"\s*(?:export\s+)?[A-Za-z_][\w.]*\s*")
_REOPENED = re.compile(r"""\s*(?:export\s+)?[A-Za-z_]\w*\s*=\s*(["'])(?!\s+#).*\S""")
_CLOSE = "close it before the end or a comment, or use the other quotes"
_OPEN_QUOTE = re.compile(r"""'[^']*|"(?:[^"\\]|\\.)*\\?""", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\n|\r")
_NOT_SETTINGS = frozenset({"LOGLEVEL", "LOG_FORMAT"})


def load_settings(
    schema: Schema,
    sources: Sequence[str],
    env_prefix: str,
    environ: Mapping[str, str],
    dotenv: Path = DOTENV,
) -> dict[str, Any]:
    """Read and merge settings; `checking.complete_settings` checks them.

    Args:
        sources: File paths, later ones overriding earlier ones, and `ENV`, which overrides files.
        env_prefix: E.g. `TAP_SPARK_`.
        environ: Environment variables.
        dotenv: Read together with `ENV`, if it exists; real variables override it.

    Returns:
        The merged settings: objects merged at every depth, everything else replaced.

    Raises:
        InvalidSettingsError: A file cannot be read, or a variable cannot be understood.
    """
    problems: list[str] = []
    merged: dict[str, Any] = {}
    for source in (name for name in sources if name != ENV):
        try:
            merged = merge(merged, normalize(schema, read_settings_file(Path(source))))
        except ValueError as error:
            problems.append(f"config file {source!r}: {error}")
    if ENV in sources:
        try:
            variables = {**read_dotenv(dotenv), **environ}
        except ValueError as error:
            problems.append(str(error))
            variables = dict(environ)
        from_env, env_problems = environment_settings(schema, env_prefix, variables)
        problems += env_problems
        merged = merge(merged, from_env)
    if problems:
        raise InvalidSettingsError(problems)
    return merged


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two objects at every depth; a null in `new` resets the setting to its default."""
    result = dict(old)
    for key, value in new.items():
        if isinstance(value, _AsItIs):
            result[key] = _laid_over(result.get(key), value)
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            lower = result.get(key)
            result[key] = merge(lower if isinstance(lower, Mapping) else {}, value)
        else:
            result[key] = value
    return result


class _AsItIs(dict[str, Any]):
    """An object that keeps its nulls."""


def _laid_over(old: Json, new: _AsItIs) -> _AsItIs:
    """Lay one object over another; its entries come last, because the last one wins."""
    under = old if isinstance(old, Mapping) else {}
    result = _AsItIs((key, value) for key, value in under.items() if key not in new)
    for key, value in new.items():
        lower = under.get(key)
        if isinstance(lower, Mapping) and isinstance(value, Mapping):
            result[key] = {**lower, **value}
        else:
            result[key] = value
    return result


def normalize(schema: Schema, value: Json) -> Json:
    """Turn every accepted spelling into the one that the schema describes.

    Objects marked by `KEEP` stay as they are. Elsewhere dotted keys (`spark.master`) become nested
    objects, nested objects in free-form settings become dotted keys (`spark.conf`), and nulls
    inside array items are dropped.
    """
    if isinstance(value, Mapping) and schema.get(KEEP):
        return _AsItIs(value)
    if isinstance(value, Mapping) and "properties" in schema:
        return _nested(schema["properties"], value)
    if isinstance(value, Mapping) and (inner := below(schema)):  # such as `options`, `spark.conf`
        return _named(inner, value) if "properties" in inner else dict(_flattened(value))
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        items = (normalize(schema["items"], item) for item in value)
        return [merge({}, item) if isinstance(item, Mapping) else item for item in items]
    return value


def _nested(properties: Mapping[str, Schema], value: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        head, _, rest = key.partition(".")
        if key not in properties and rest and properties.get(head, {}).get("type") == "object":
            key, item = head, {rest: item}  # noqa: PLW2901
        item = normalize(properties.get(key, {}), item)  # noqa: PLW2901
        if isinstance(item, _AsItIs):
            item = _laid_over(result.get(key), item)  # noqa: PLW2901
        elif isinstance(item, Mapping) and isinstance(result.get(key), Mapping):
            item = {**merge(result[key], item), **_nulls(item)}  # noqa: PLW2901
        result[key] = item
    return result


def _named(schema: Schema, value: Mapping[str, Any]) -> dict[str, Any]:
    """Normalize an object of objects by names that the user chose and that may contain dots."""
    result: dict[str, Any] = {}
    for key, item in value.items():
        name, _, rest = key.rpartition(".")
        if not isinstance(item, Mapping) and name and rest in schema["properties"]:
            key, item = name, {rest: item}  # noqa: PLW2901
        item = normalize(schema, item)  # noqa: PLW2901
        if isinstance(item, Mapping) and isinstance(result.get(key), Mapping):
            item = merge(result[key], item)  # noqa: PLW2901
        result[key] = item
    return result


def _nulls(value: Mapping[str, Any]) -> dict[str, None]:
    return {key: None for key, item in value.items() if item is None}


def _flattened(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _flattened(item, f"{prefix}{key}.")
        else:
            yield prefix + key, item


def read_dotenv(path: Path) -> dict[str, str]:
    """Read `KEY=VALUE` lines; with quotes, `export` and comments, without expansion.

    Values in quotes may have several lines. A name alone, as Docker allows it, is left out with a
    warning.

    Raises:
        ValueError: The file cannot be read, or a line not understood; names file and line.
    """
    names: list[int] = []
    try:
        variables = dict(_dotenv_pairs(read_whole(path).decode("utf-8-sig"), names))
        if names:
            _warn_once(f"'{path}': line {names[0]} has a name without =VALUE: it is left out")
        return variables
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):  # A folder is a virtualenv.
        return {}
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    except UnicodeDecodeError:
        reason = "not UTF-8 text"
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"{str(path)!r}: {reason}")


@cache
def _warn_once(text: str) -> None:
    _log.warning("%s", text)


def _dotenv_pairs(text: str, names: list[int]) -> Iterator[tuple[str, str]]:
    """Yield names and values; add the numbers of lines that have a name alone."""
    lines = enumerate(_LINE_END.split(text), start=1)
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _DOTENV_LINE.match(line)
        if match is None and _DOTENV_NAME.fullmatch(line):
            names.append(number)
            continue
        if match is None:
            text = "mend it, or begin it with # to leave it out"
            raise ValueError(f"line {number} is not KEY=VALUE: {text}")
        value = line[match.start(2) :]
        while _OPEN_QUOTE.fullmatch(value) and (following := next(lines, None)):
            value += f"\n{following[1]}"
        reopened = _REOPENED.match(value.rpartition("\n")[2]) if "\n" in value else None
        if reopened is not None and reopened[1] == value[0]:
            # The quote of another variable has closed it.
            raise ValueError(f"line {number} has no closing quote: {_CLOSE}")
        yield match[1], _dotenv_value(value.rstrip(), number)


def _dotenv_value(text: str, number: int) -> str:
    quote = text[:1]
    if quote not in ("'", '"'):
        return re.sub(r"(^|\s+)#.*$", "", text)
    pattern = r"'([^']*)'" if quote == "'" else r'"((?:[^"\\]|\\.)*)"'
    match = re.fullmatch(pattern + r"\s*(?:#.*)?", text, re.DOTALL)
    if match is None:
        raise ValueError(f"line {number} has no closing quote: {_CLOSE}")
    if quote == "'":
        return match.group(1)
    escapes = {"n": "\n", "t": "\t", "r": "\r"}
    return re.sub(r"\\([^\n])", lambda escape: escapes.get(escape[1], escape[1]), match.group(1))


def environment_settings(
    schema: Schema, prefix: str, variables: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the settings in environment variables.

    Args:
        prefix: E.g. `TAP_SPARK_`; nested keys follow joined by `__`.
        variables: Names and values; an empty value means not set.

    Returns:
        The settings, and one line for each variable that cannot be understood.
    """
    names = dict(_variable_names(schema))
    settings: list[tuple[Keys, Any]] = []
    problems: list[str] = []
    others = _NOT_SETTINGS.union(schema.get(OTHER_VARIABLES, ()))
    for variable in sorted(variables):
        name = variable.removeprefix(prefix)
        text = variables[variable]
        if name == variable or not text or name.startswith("_") or name in others:
            continue
        location = _locate(schema, names, name)
        if location is None:
            match = nearest(name, names)
            hint = f"; did you mean {prefix}{match}?" if match else ""
            problems.append(f"environment {variable}: unknown setting{hint}")
            continue
        try:
            settings.append((location, coerce(reduce(below, location, schema), text)))
        except ValueError as error:
            problems.append(f"environment {variable}: {error}")
    result: dict[str, Any] = {}
    for location, value in sorted(settings, key=lambda item: len(item[0])):
        nested = reduce(lambda inside, key: {key: inside}, reversed(location), value)
        result = merge(result, normalize(schema, nested))
    return result, problems


def _variable_names(schema: Schema, above: Keys = ()) -> Iterator[tuple[str, Keys]]:
    for name, child in schema.get("properties", {}).items():
        location = (*above, name)
        # Meltano joins nested settings by one underscore; `__` is the documented spelling.
        yield "_".join(location).upper(), location
        yield "__".join(location).upper(), location
        yield from _variable_names(child, location)
        if "properties" not in child and (below(child) or child.get("additionalProperties")):
            yield "__".join(location).upper() + "__", location


_BETWEEN_KEYS = re.compile(r"(?<=[^_])__(?=.)")
"""Not those of `__filter__`."""


def _locate(schema: Schema, names: Mapping[str, Keys], name: str) -> Keys | None:
    if name.upper() in names and not name.endswith("__"):
        return names[name.upper()]
    for start in (prefix for prefix in names if prefix.endswith("__")):
        key = name[len(start) :]
        if name.upper().startswith(start) and key:
            key = key.lower() if key.isupper() else key
            # Where nothing is declared, values may be objects.
            is_free = not below(reduce(below, names[start], schema))
            keys = _BETWEEN_KEYS.split(key) if is_free else [key.replace("__", ".")]
            return (*names[start], *keys)
    return None


def coerce(schema: Schema, text: str) -> Json:
    """Turn a variable's text into a value of the type its schema asks for.

    Returns:
        The value; the text itself if it fits no type, for the check to report. Without a type:
        an object, an array or a boolean if the text is one in JSON, else the text.

    Raises:
        ValueError: The schema needs JSON and the text is not JSON.
    """
    if not schema and (text in ("true", "false") or text.lstrip().startswith(("[", "{"))):
        with suppress(json.JSONDecodeError):
            return json.loads(text, **_STRICT)
    declared = schema.get("type", "string")
    types = [declared] if isinstance(declared, str) else list(declared)
    if "array" in types or "object" in types:
        if "string" in types and not text.lstrip().startswith(("[", "{")):
            return text
        return _json_value(schema, text)
    if "string" in types:
        return text
    if "boolean" in types:
        return _BOOLEANS.get(text.strip().lower(), text)
    return _number(text, whole="number" not in types)


def _json_value(schema: Schema, text: str) -> Json:
    try:
        return json.loads(text, **_STRICT)
    except json.JSONDecodeError as error:
        where = "" if holds_secret(schema) else f" at column {error.colno}"
        raise ValueError(f"not valid JSON: {error.msg}{where}") from None


def _number(text: str, *, whole: bool) -> Json:
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        if math.isfinite(float(text)) and not whole:
            return float(text)
    return text


COMMAND_SECONDS = 60

_REFERENCE = re.compile(r"(env|file|cmd):(.+)", re.DOTALL)
_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
# Among options of Java and Spark, `file:` may as well be a URL.
_SECRET_OPTION = re.compile(r"passw|pwd|secret|token|credential|jaas|key|salt", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(rf"{_SECRET_OPTION.pattern}|pass|pw|auth|cred|sas", re.IGNORECASE)


def with_secrets(
    schema: Schema, settings: Mapping[str, Any], variables: Mapping[str, str]
) -> dict[str, Any]:
    """Return settings with the secrets that they refer to.

    Args:
        schema: JSON Schema of the program; values that it declares `secret` may be references, at
            every depth. Others stay as they are.
        variables: Environment variables; an empty value means not set.

    Raises:
        InvalidSettingsError: Secrets cannot be read; names each setting, and no secret.
    """
    problems: list[str] = []
    secret = cache(partial(secret_of, variables=variables))  # A command runs once.

    def filled(schema: Schema, value: Json, path: Location, *, is_secret: bool) -> Json:
        is_secret = is_secret or schema.get("secret") is True
        if isinstance(value, Mapping):
            return {
                key: filled(below(schema, key), item, (*path, key), is_secret=is_secret)
                for key, item in value.items()
            }
        if isinstance(value, list):
            items, pairs = schema.get("items", {}), enumerate(value)
            return [filled(items, item, (*path, at), is_secret=is_secret) for at, item in pairs]
        if is_secret and isinstance(value, str) and _is_reference(schema, value, path):
            try:
                hide(secret(value))
                return secret(value)
            except ValueError as error:
                problems.append(f"{setting_place(path)}: {error}")
        elif is_secret and isinstance(value, str) and _has_secret_name(path):
            # A job fills `${NAME}` in, and its programs have the variable, too.
            for name, text in variables.items():
                # Parts of a path, such as HOME or USER, would be hidden everywhere.
                is_part = text in value and _SECRET_VARIABLE.search(name)
                # `Path.is_dir` fails for what is too long to be a name.
                if (text == value or is_part) and not os.path.isdir(text):  # noqa: PTH112
                    hide(text)
        return value

    resolved: dict[str, Any] = filled(schema, settings, (), is_secret=False)
    if problems:
        raise InvalidSettingsError(problems)
    return resolved


def _is_reference(schema: Schema, value: str, path: Location) -> bool:
    is_option = value.startswith("file:") and isinstance(schema.get("type"), list)
    if is_option and not _has_secret_name(path):
        return False
    return _REFERENCE.fullmatch(value) is not None


def _has_secret_name(path: Location) -> bool:
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    return _SECRET_OPTION.search(name) is not None


def secret_of(text: str, variables: Mapping[str, str]) -> str:
    """Return the secret that a text refers to; the text itself if it is no reference.

    Args:
        text: `env:NAME`, `file:PATH`, or `cmd:` and a command of the shell.
        variables: Environment variables; an empty value means not set.

    Raises:
        ValueError: It cannot be read, in words that fit behind the name of the setting.
    """
    reference = _REFERENCE.fullmatch(text)
    if reference is None:
        return text
    kind, name = reference.groups()
    if kind == "env":
        if not variables.get(name):
            raise ValueError(f"the environment variable {name!r} is not set")
        return variables[name]
    data = _content(name.removeprefix("//")) if kind == "file" else _output(name)
    what = f"the file {name!r}" if kind == "file" else "the output of the command"
    try:
        secret = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ValueError(f"{what} is not UTF-8 text") from None
    if not secret:
        raise ValueError(f"{what} is empty")
    return secret


def _content(name: str) -> bytes:
    try:
        return read_whole(os.path.expanduser(name))  # noqa: PTH111
    except OSError as error:
        raise ValueError(f"the file {name!r} cannot be read ({error.strerror})") from None


def _output(command: str) -> bytes:
    """Run a command of the user's own settings, without standard input: that holds messages."""
    none, pipe = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(("sh", "-c", command), stdin=none, stdout=pipe, stderr=pipe) as process:
        try:
            out, err = process.communicate(timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            # What the shell has started may live on, and keep the pipes open.
            process.kill()
            text = f"the command has not ended within {COMMAND_SECONDS} s"
            raise ValueError(text) from None
    if process.returncode:
        reason = err.decode(errors="replace").strip().partition("\n")[0]
        text = f"the command failed with exit code {process.returncode}"
        raise ValueError(f"{text}: {reason}" if reason else text)
    return out


def with_variables(
    value: Json, variables: Mapping[str, str], others: Mapping[str, Json] = MappingProxyType({})
) -> Json:
    """Replace `${NAME}` and `${NAME:-default}` in every text of a value; `$$` stands for `$`.

    Args:
        others: Numbers and booleans, which replace a text that is one variable and no more.

    Raises:
        ValueError: Variables without a default are not set; names each of them.
    """
    missing: set[str] = set()

    def replaced(match: re.Match[str]) -> str:
        name, default = match.groups()
        if name is None:
            return "$"
        if not variables.get(name) and default is None:
            missing.add(name)
        return variables.get(name) or default or ""

    def filled_leaf(leaf: Json) -> Json:
        if not isinstance(leaf, str):
            return leaf
        whole = _VARIABLE.fullmatch(leaf)
        return others[whole[1]] if whole and whole[1] in others else _VARIABLE.sub(replaced, leaf)

    filled = _with_leaves(value, filled_leaf)
    if missing:
        names = ", ".join(sorted(missing))
        raise ValueError(f"environment variables that are not set: {names}")
    return filled
