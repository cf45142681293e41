"""The job file: named jobs, and environments that change them. `docs/jobs.md` explains it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.errors import InvalidSettingsError, SettingsError, Where
from shared.settings.checking import Problem, Schema, as_text, complete_settings, nearest
from shared.settings.kinds import SWITCH, TEXT, VALUES, at_least
from shared.settings.loading import DOTENV, read_dotenv, read_settings_file, with_variables

Settings = Mapping[str, Any]

DEFAULT_FILES = ("job.yml", "jobs.yml")
_NAME = re.compile(r"[A-Za-z0-9][\w-]*", re.ASCII)


def _object(properties: Settings, *required: str) -> Schema:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)}


_FREE: Schema = {"type": "object", "additionalProperties": True, "secret": True}
_FREE_OR_FILE: Schema = {**_FREE, "type": ["object", "string"]}
_JOB = _object({"tap": _FREE_OR_FILE, "target": _FREE_OR_FILE, "catalog": TEXT}, "tap", "target")
_ENVIRONMENT = _object({"variables": VALUES, "tap": _FREE, "target": _FREE})
SCHEMA: Schema = _object(
    {
        "jobs": {"type": "object", "additionalProperties": _JOB},
        "environments": {"type": "object", "additionalProperties": _ENVIRONMENT, "default": {}},
        "state": {**TEXT, "default": "state"},
        "runs": {**TEXT, "default": "runs"},
        "keep_runs": {**at_least(1), "default": 100},
        "warn_drift": {**SWITCH, "default": False},
        "metrics": TEXT,
    },
    "jobs",
)
"""JSON Schema of a job file."""


@dataclass(frozen=True)
class JobFile:
    """A job file that has been checked; its settings have their defaults."""

    path: Path
    settings: Settings

    @property
    def folder(self) -> Path:
        """The folder that paths in the file are relative to."""
        return self.path.absolute().parent

    @property
    def runs(self) -> Path:
        """The folder with the history of all jobs."""
        return self.inside("runs")

    def inside(self, setting: str) -> Path:
        """Return the folder that a setting names."""
        return Path(self.folder, self.settings[setting])


@dataclass(frozen=True)
class NamedJob:
    """A job in an environment, ready to run.

    Attributes:
        environment: The environment; None if the file has none.
        tap: Settings of the tap, which may hold secrets; later ones override earlier ones.
        target: Settings of the target, likewise.
        variables: Environment variables of both programs.
    """

    file: JobFile
    name: str
    environment: str | None
    tap: tuple[Settings, ...]
    target: tuple[Settings, ...]
    variables: Mapping[str, str]

    @property
    def key(self) -> str:
        """What the files of the job are named after."""
        return self.name if self.environment is None else f"{self.name}.{self.environment}"

    @property
    def catalog(self) -> str | None:
        """The catalog of the tap."""
        catalog: str | None = self.file.settings["jobs"][self.name].get("catalog")
        return catalog

    @property
    def state(self) -> Path:
        """The file with the STATE of the last run."""
        return self.file.inside("state") / f"{self.key}.json"

    @property
    def history(self) -> Path:
        """The folder with the runs of the job."""
        return self.file.runs / self.key


def read_job_file(path: str | None) -> JobFile:
    """Read and check a job file.

    Args:
        path: The file; None for the one of `DEFAULT_FILES` in the current folder.

    Raises:
        SettingsError: It cannot be read, or is not valid.
    """
    file = Path(path) if path else next(map(Path, filter(os.path.isfile, DEFAULT_FILES)), None)
    if file is None:
        raise SettingsError("no job file given", hint=f"give one, or write {DEFAULT_FILES[0]}")
    try:
        settings = read_settings_file(file)
        return JobFile(file, complete_settings(SCHEMA, settings, (_name_problems,)))
    except InvalidSettingsError as error:
        problems = error.problems
    except ValueError as error:
        other = next(map(Path, filter(os.path.isfile, DEFAULT_FILES)), None)
        is_job = other is not None and not file.exists() and _NAME.fullmatch(str(file)) is not None
        problems = (f"{error}; give FILE before JOB: {other} {file}" if is_job else str(error),)
    raise InvalidSettingsError(f"job file '{file}': {problem}" for problem in problems)


def job_of(
    file: JobFile, name: str | None, environment: str | None, environ: Mapping[str, str]
) -> NamedJob:
    """Return a job, with the values of its variables.

    Args:
        name: Of the job; None for the only one.
        environment: Name of the environment; None if the file has none.
        environ: Environment variables; `.env` beside the job file adds others.

    Raises:
        SettingsError: There is no such job or environment, a settings file cannot be read, or a
            variable is not set.
    """
    name = _chosen(file, "job", file.settings["jobs"], name, "its name")
    job, environments, overlay = file.settings["jobs"][name], file.settings["environments"], {}
    if environments or environment is not None:
        environment = _chosen(file, "environment", environments, environment, "--env")
        overlay = environments[environment]
    try:
        outer = {**read_dotenv(file.folder / DOTENV), **environ}
        declared = overlay.get("variables", {})
        own = {key: as_text(value) for key, value in declared.items()}
        others = {key: value for key, value in declared.items() if not isinstance(value, str)}
        variables = {**outer, **with_variables(own, outer)}
        tap, target = (
            tuple(
                with_variables(one, variables, others)
                for one in _settings(file, job[side], overlay, side)
            )
            for side in ("tap", "target")
        )
    except ValueError as error:
        raise SettingsError(
            f"job '{name}': {error}",
            where=Where(file=str(file.path)),
            hint="see `singer-spark docs jobs`",
        ) from None
    return NamedJob(file, name, environment, tap, target, variables)


def check_names(file: JobFile, job: str | None, environment: str | None) -> None:
    """Check that a job file has a job and an environment; None for any.

    Raises:
        SettingsError: It does not have one.
    """
    if job is not None:
        _chosen(file, "job", file.settings["jobs"], job, "its name")
    if environment is not None:
        _chosen(file, "environment", file.settings["environments"], environment, "--env")


def _settings(
    file: JobFile, own: Settings | str, overlay: Settings, side: str
) -> Iterator[Settings]:
    if isinstance(own, str):
        try:
            own = read_settings_file(file.folder / own)
        except ValueError as error:
            raise ValueError(f"settings file '{own}': {error}") from None
    yield own
    if side in overlay:
        yield overlay[side]


def _chosen(file: JobFile, kind: str, choices: Iterable[str], name: str | None, how: str) -> str:
    names = list(choices)
    if name is None and len(names) == 1 and kind == "job":
        return names[0]
    if name in names:
        return str(name)
    listed = ", ".join(names) or "none"
    problem = f"no {kind} given" if name is None else f"there is no {kind} '{name}'"
    match = nearest(name, names) if name else None
    hint = f"did you mean {match}?" if match else f"give {how}; the file has: {listed}"
    raise SettingsError(problem, where=Where(file=str(file.path)), hint=hint)


def _name_problems(settings: Settings) -> Iterator[Problem]:
    for block in ("jobs", "environments"):
        names = settings.get(block, {})
        for name in names if isinstance(names, Mapping) else ():
            if not _NAME.fullmatch(str(name)):
                text = "names files, so that it must be letters, digits, _ and -"
                yield Problem((block, name), text)
