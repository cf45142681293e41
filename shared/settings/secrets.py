"""Values from elsewhere: secrets as `env:NAME`, `file:PATH`, `cmd:COMMAND`, and `${NAME}`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared.errors import InvalidSettingsError
from shared.settings.checking import Json, Location, Schema, place
from shared.settings.texts import hide

COMMAND_SECONDS = 60

_REFERENCE = re.compile(r"(env|file|cmd):(.+)", re.DOTALL)
_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
# Among options of Java and Spark, `file:` may as well be a URL.
_SECRET_OPTION = re.compile(r"passw|pwd|secret|token|credential|jaas|key", re.IGNORECASE)


def with_secrets(
    schema: Schema, settings: Mapping[str, Any], variables: Mapping[str, str]
) -> dict[str, Any]:
    """Return settings with the secrets that they refer to.

    Args:
        schema: JSON Schema of the program; values that it declares `secret` may be references, at
            every depth. Others stay as they are.
        settings: Merged settings, not necessarily valid ones.
        variables: Environment variables; an empty value means not set.

    Raises:
        InvalidSettingsError: Secrets cannot be read; names each setting, and no secret.
    """
    reader = _Reader(variables)
    found: dict[str, Any] = reader.read(schema, settings, (), is_secret=False)
    if reader.problems:
        raise InvalidSettingsError(reader.problems)
    return found


@dataclass
class _Reader:
    variables: Mapping[str, str]
    problems: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)

    def read(self, schema: Schema, value: Json, path: Location, *, is_secret: bool) -> Json:
        is_secret = is_secret or schema.get("secret") is True
        if isinstance(value, Mapping):
            known, others = schema.get("properties", {}), schema.get("additionalProperties")
            others = others if isinstance(others, Mapping) else {}
            return {
                key: self.read(known.get(key, others), item, (*path, key), is_secret=is_secret)
                for key, item in value.items()
            }
        if isinstance(value, list):
            items = schema.get("items", {})
            pairs = enumerate(value)
            return [self.read(items, item, (*path, at), is_secret=is_secret) for at, item in pairs]
        is_reference = is_secret and isinstance(value, str) and _is_reference(schema, value, path)
        return self._secret(value, path) if is_reference else value

    def _secret(self, reference: str, path: Location) -> str:
        try:
            if reference not in self.secrets:
                self.secrets[reference] = secret_of(reference, self.variables)
                hide(self.secrets[reference])
            return self.secrets[reference]
        except ValueError as error:
            self.problems.append(f"{place(path)}: {error}")
            return reference


def _is_reference(schema: Schema, value: str, path: Location) -> bool:
    is_option = value.startswith("file:") and isinstance(schema.get("type"), list)
    if is_option and not _SECRET_OPTION.search(str(path[-1])):
        return False
    return _REFERENCE.fullmatch(value) is not None


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
        return Path(name).expanduser().read_bytes()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"the file {name!r} cannot be read ({reason})") from None


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


def with_variables(value: Json, variables: Mapping[str, str]) -> Json:
    """Replace `${NAME}` and `${NAME:-default}` in every text of a value; `$$` stands for `$`.

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

    def walked(item: Json) -> Json:
        if isinstance(item, Mapping):
            return {key: walked(inner) for key, inner in item.items()}
        if isinstance(item, list):
            return [walked(inner) for inner in item]
        return _VARIABLE.sub(replaced, item) if isinstance(item, str) else item

    found = walked(value)
    if missing:
        names = ", ".join(sorted(missing))
        raise ValueError(f"environment variables that are not set: {names}")
    return found
