"""The description of a program: `--about` and `--version`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from shared.settings.checking import OTHER_SPELLING, Json, Rule, Schema, declared_names
from shared.settings.loading import SCHEMA_KEY

PACKAGE = "singer-spark"


@dataclass(frozen=True)
class Program:
    """One of the two programs, as data.

    Attributes:
        name: Command name, e.g. `tap-spark`.
        rules: Checks between its settings.
        capabilities: Words of the Meltano SDK.
        setting_groups: Names of settings; a run needs those of one group.
    """

    name: str
    description: str
    schema: Schema
    rules: tuple[Rule, ...]
    capabilities: tuple[str, ...]
    setting_groups: tuple[tuple[str, ...], ...] = ((),)

    @property
    def env_prefix(self) -> str:
        """Prefix of the names of its environment variables."""
        return self.name.upper().replace("-", "_") + "_"


@dataclass(frozen=True)
class Setting:
    """One row of a settings table.

    Attributes:
        name: Dotted; `[]` stands for the items of an array.
        types: E.g. `string or array`.
        required: Within its parent.
        default: As JSON, or empty.
        variable: Environment variable; empty for settings inside items of an array.
    """

    name: str
    types: str
    required: bool
    default: str
    description: str
    variable: str
    schema: Schema


def version() -> str:
    """Read the version of the installed package."""
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return "0+unknown"


def python_versions() -> list[str]:
    """Read the Python versions the package declares."""
    try:
        classifiers = metadata.metadata(PACKAGE).get_all("Classifier") or []
    except metadata.PackageNotFoundError:
        return []
    matches = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", c) for c in classifiers)
    return [match.group(1) for match in matches if match]


def settings_of(program: Program) -> Iterator[Setting]:
    """Yield every setting of a program, parents first."""
    required = set(_required_names(program.schema))
    for name, schema in declared_names(program.schema):
        if schema.get(OTHER_SPELLING):
            continue
        kinds = schema.get("type", "any")
        variable = "" if "[]" in name else program.env_prefix + name.upper().replace(".", "__")
        yield Setting(
            name=name,
            types=" or ".join([kinds] if isinstance(kinds, str) else kinds),
            required=name in required,
            default=json.dumps(schema["default"]) if "default" in schema else "",
            description=_described(schema),
            variable=variable,
            schema=schema,
        )


def _required_names(schema: Schema, prefix: str = "") -> Iterator[str]:
    yield from (prefix + name for name in schema.get("required", ()))
    for name, child in schema.get("properties", {}).items():
        yield from _required_names(child, f"{prefix}{name}.")
        yield from _required_names(child.get("items", {}), f"{prefix}{name}[].")


def _described(schema: Schema) -> str:
    text = str(schema.get("description", ""))
    if "enum" in schema:
        text += f" One of {', '.join(f'`{choice}`' for choice in schema['enum'])}."
    if "examples" in schema:
        text += f" Example: {', '.join(f'`{json.dumps(item)}`' for item in schema['examples'])}."
    return f"{text} Secret." if schema.get("secret") else text


def about_data(program: Program) -> dict[str, Any]:
    """Describe a program with the keys of the SDK's `--about --format json`."""
    return {
        "name": program.name,
        "description": program.description,
        "version": version(),
        "sdk_version": f"{PACKAGE} {version()}",
        "supported_python_versions": python_versions(),
        "capabilities": list(program.capabilities),
        "settings": program.schema,
    }


def about_json(program: Program) -> str:
    """Describe a program as JSON."""
    return json.dumps(about_data(program), indent=2)


def schema_json(program: Program) -> str:
    """Write the JSON Schema of settings files, by which editors complete and check them."""
    schema: dict[str, Any] = _plain(program.schema)
    # The newest version that editors of YAML know; no later keyword is used.
    schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    name = {"type": "string", "description": "Where editors find this schema; not a setting."}
    schema["properties"] = {SCHEMA_KEY: name, **schema["properties"]}
    return json.dumps(schema, indent=2)


def _plain(value: Json) -> Json:
    """Leave out the keywords that only these programs know."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if not key.startswith("x-")}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def about_text(program: Program) -> str:
    """Describe a program for a terminal."""
    lines = [
        f"Name: {program.name}",
        f"Description: {program.description}",
        f"Version: {version()}",
        f"SDK Version: {PACKAGE} {version()}",
        f"Supported Python Versions: {', '.join(python_versions())}",
        "Capabilities:",
        *(f"  - {word}" for word in program.capabilities),
        "Settings:",
    ]
    for setting in settings_of(program):
        lines += [f"  - Name: {setting.name}", f"    Type: {setting.types}"]
        lines += ["    Required: yes"] if setting.required else []
        lines += [f"    Default: {setting.default}"] if setting.default else []
        lines += [f"    Description: {setting.description}"]
        lines += [f"    Environment Variable: {setting.variable}"] if setting.variable else []
    return "\n".join(lines)


def table_of(settings: Iterable[Setting]) -> str:
    """Write settings as a Markdown table."""
    lines = [
        "| Setting | Type | Required | Default | Description | Environment variable |",
        "|:--------|:-----|:--------:|:--------|:------------|:---------------------|",
    ]
    for setting in settings:
        default = f"`{setting.default}`" if setting.default else ""
        cells = (
            f"`{setting.name}`",
            setting.types,
            "yes" if setting.required else "",
            default,
            setting.description,
            f"`{setting.variable}`" if setting.variable else "",
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def about_markdown(program: Program) -> str:
    """Describe a program as a Markdown page."""
    capabilities = "\n".join(f"- `{word}`" for word in program.capabilities)
    return (
        f"# `{program.name}`\n\n{program.description}\n\n"
        f"## Capabilities\n\n{capabilities}\n\n"
        f"## Settings\n\n{table_of(settings_of(program))}\n\n"
        f"Environment variables are named `{program.env_prefix}<SETTING>` in upper case, nested "
        "names joined by `__`; they are read with `--config=ENV`."
    )


ABOUT_FORMATS: dict[str, Callable[[Program], str]] = {
    "text": about_text,
    "json": about_json,
    "json-schema": schema_json,
    "markdown": about_markdown,
}
"""`--format` → function that writes the description."""
