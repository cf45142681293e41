"""Secrets that settings refer to: found at every depth, and shown by no message."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from shared.cli import read_settings
from shared.errors import InvalidSettingsError
from shared.settings.about import Program
from shared.settings.loading import secret_of, with_secrets, with_variables
from shared.settings.texts import hide, without_secrets
from shared.singer.logs import Console, ConsoleHandler, JsonFormatter, LineFormatter
from shared.singer.run_summary import summarized
from tools.docs import programs

SECRET = "hunter2"
VARIABLES = {"SECRET": SECRET, "LITERAL": "env:SECRET", "EMPTY": ""}


def places(schema: Mapping[str, Any], above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every place of a secret; of one key in objects that take any."""
    for name, child in schema.get("properties", {}).items():
        yield from places(child, (*above, name))
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping):
        yield from places(others, (*above, "password"))
    if "items" in schema:
        yield from places(schema["items"], (*above, 0))
    if schema.get("secret") and schema.get("type") == "object":
        yield from ((*above, "key"), (*above, "client", "list", 0))
    elif schema.get("secret"):
        yield above


def document(path: tuple[Any, ...], value: Any) -> Any:
    for part in reversed(path):
        value = [value] if part == 0 else {part: value}
    return value


@pytest.fixture(autouse=True)
def nothing_stays_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.settings.texts._secrets", set())


CASES = [(one, path) for one in programs() for path in places(one.schema)]


def test_there_are_secrets_in_both_programs() -> None:
    names = {(one.name, path) for one, path in CASES}
    assert {
        ("tap-spark", ("connections", 0, "password")),
        ("tap-spark", ("connections", 0, "options", "password")),
        ("tap-spark", ("batch_config", "storage", "options", "key")),
        ("target-spark", ("storage_options", "client", "list", 0)),
        ("target-spark", ("jdbc", "url")),
    } <= names


@pytest.mark.parametrize("reference", ["env:SECRET", "file:secret", "cmd:echo hunter2"])
@pytest.mark.parametrize(("program", "path"), CASES, ids=lambda one: str(getattr(one, "name", one)))
def test_every_secret_setting_takes_references(
    program: Program,
    path: tuple[Any, ...],
    reference: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    monkeypatch.chdir(tmp_path)
    actual = with_secrets(program.schema, document(path, reference), VARIABLES)
    assert actual == document(path, SECRET)


def test_other_settings_stay(tmp_path: Path) -> None:
    tap, target = programs()
    for program, settings in (
        (tap, {"streams": [{"name": "cmd:a", "path": "file:/data", "query": "env:SECRET"}]}),
        (tap, {"spark": {"conf": {"spark.sql.warehouse.dir": "file:/lake", "a": True}}}),
        (target, {"path": "file:/lake", "jdbc": {"password": "a:env:b"}, "storage_options": None}),
    ):
        assert with_secrets(program.schema, settings, {}) == settings


def test_the_last_line_end_goes_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for text, secret in (("a", "a"), (" a\n\n", " a\n"), ("a\r\n", "a"), ("ü\n", "ü")):
        file.write_bytes(text.encode())
        assert secret_of(f"file:{file}", {}) == secret
        assert secret_of(f"file://{file}", {}) == secret
        assert secret_of(f"cmd:cat '{file}'", {}) == secret


def test_a_file_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.settings.loading.LARGEST", 1 << 20)
    with pytest.raises(ValueError, match=r"/dev/zero.*more than 1 MiB"):
        secret_of("file:/dev/zero", {})


def test_a_literal_that_looks_like_a_reference() -> None:
    assert secret_of("env:LITERAL", VARIABLES) == "env:SECRET"
    assert secret_of("ENV:SECRET", VARIABLES) == "ENV:SECRET"


@pytest.mark.parametrize(
    ("reference", "error"),
    [
        ("env:EMPTY", "the environment variable 'EMPTY' is not set"),
        ("file:none", r"the file 'none' cannot be read \(No such file or directory\)"),
        ("file:/", r"the file '/' cannot be read \(Is a directory\)"),
        ("file:/dev/null", "the file '/dev/null' is empty"),
        ("cmd:true", "the output of the command is empty"),
        ("cmd:printf '\\377'", "the output of the command is not UTF-8 text"),
        (
            "cmd:echo hunter2; echo 'not logged in' >&2; echo hunter2 >&2; exit 3",
            "the command failed with exit code 3: not logged in",
        ),
        ("cmd:echo hunter2; exit 3", "the command failed with exit code 3"),
        ("cmd:no-such-command-here", "the command failed with exit code 127: "),
    ],
)
def test_errors_hide_what_a_command_writes(reference: str, error: str) -> None:
    settings = {"connections": [{"password": reference}, {"url": reference}]}
    with pytest.raises(InvalidSettingsError, match=error) as caught:
        with_secrets(programs()[0].schema, settings, VARIABLES)
    assert SECRET not in str(caught.value)
    first, second = caught.value.problems
    assert first.startswith("config['connections'][0]['password']: ")
    assert second.startswith("config['connections'][1]['url']: ")


def test_a_command_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    start = time.monotonic()
    monkeypatch.setattr("shared.settings.loading.COMMAND_SECONDS", 0.2)
    with pytest.raises(ValueError, match=r"not ended within 0.2 s"):
        secret_of("cmd:sleep 20; echo x", {})
    assert time.monotonic() - start < 15


def test_a_command_runs_once_and_only_if_its_setting_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(
        "path: lake\nstorage_options: {key: 'cmd:echo x | tee -a runs', secret: cmd:touch never}\n"
    )
    Path("b.toml").write_text('storage_options = {secret = "cmd:echo x | tee -a runs"}\n')
    actual = read_settings(programs()[1], ["a.yaml", "b.toml"])
    assert actual["storage_options"] == {"key": "x", "secret": "x"}
    assert Path("runs").read_text() == "x\n"
    assert not Path("never").exists()


def test_no_text_for_people_shows_a_secret(tmp_path: Path) -> None:
    secret = 'pa"ss & <w0rd>'
    with_secrets(programs()[0].schema, {"spark": {"remote": "env:A"}}, {"A": secret, "B": "x"})
    stream = StringIO()
    handler = ConsoleHandler(Console(stream))
    error = RuntimeError(f"FATAL: {secret} is wrong")
    record = logging.LogRecord("a", logging.ERROR, "", 1, "%s", (error,), None)
    for formatter in (LineFormatter("tap-spark"), JsonFormatter("tap-spark")):
        handler.setFormatter(formatter)
        handler.emit(record)
    observer = EndObserver()
    with pytest.raises(RuntimeError), summarized("tap-spark", *_files(tmp_path)) as summary:
        summary.observe([observer])
        raise error
    texts = [
        stream.getvalue(),
        str(observer.facts),
        *(path.read_text() for path in tmp_path.iterdir()),
    ]
    assert [text.count("FATAL: *** is wrong") for text in texts] == [2, 1, 1, 1]
    assert not any("w0rd" in text for text in texts)


class EndObserver:
    """An observer that keeps what it is told at the end."""

    facts: Any = None

    def ended(self, facts: Any) -> None:
        self.facts = facts


def _files(folder: Path) -> tuple[str, str]:
    return str(folder / "a.json"), str(folder / "a.html")


def test_numbers_with_the_digits_of_a_secret_stay(tmp_path: Path) -> None:
    hide("123456")
    with summarized("tap-spark", *_files(tmp_path)) as summary:
        summary.add("orders", sent=123456)
        summary.note("orders", error="no 123456")
    facts = json.loads((tmp_path / "a.json").read_text())["streams"]["orders"]
    assert facts == {"sent": 123456, "error": "no ***"}
    record = logging.LogRecord("a", logging.ERROR, "", 1, "PIN %s", ("123456",), None)
    record.process = 123456
    actual = json.loads(JsonFormatter("tap-spark").format(record))
    assert (actual["pid"], actual["message"]) == (123456, "PIN ***")


@pytest.mark.parametrize("secret", ["a ü key", "-----BEGIN\nab  cd\n-----END\n", 'it\'s "so"\\'])
def test_every_form_of_a_secret_is_hidden(secret: str) -> None:
    hide(secret)
    forms = (json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret))
    for text in (secret, *forms, " ".join(secret.split()), " ".join(secret.splitlines())):
        assert without_secrets(text).strip("'\" \n") == "***"


def test_what_a_job_filled_in_is_hidden_under_names_of_secrets() -> None:
    target = programs()[1].schema
    config = {"token": "Bearer hunter2", "tables": ["customers"], "password": "postgres"}
    variables = {"TOKEN": SECRET, "TABLE": "customers", "EMPTY": "", "PWD": "/usr/lib"}
    variables |= {"USER": "customer", "KAFKA_PASS": "pass-of-kafka"}
    config |= {"key": "/usr/lib/customers.json", "jaas": 'password="pass-of-kafka";'}
    settings = {"stream_map_config": config, "jdbc": {"password": "s3cr3t-pw"}}
    assert with_secrets(target, settings, {**variables, "P": "s3cr3t-pw"}) == settings
    text = "hunter2 s3cr3t-pw pass-of-kafka customers postgres /usr/lib"
    assert without_secrets(text) == "*** *** *** customers postgres /usr/lib"


def test_a_command_does_not_read_the_messages() -> None:
    start = time.monotonic()
    assert secret_of("cmd:cat; echo x", {}) == "x"
    assert time.monotonic() - start < 30


def test_variables_in_texts() -> None:
    variables = {"HOME": "/h", "EMPTY": ""}
    value = {"a": ["${HOME}/x", "${NONE:-d}${EMPTY:-}", 1], "$${HOME}": "$$HOME $HOME ${HOME"}
    expected = {"a": ["/h/x", "d", 1], "$${HOME}": "$HOME $HOME ${HOME"}
    assert with_variables(value, variables) == expected
    with pytest.raises(ValueError, match=r"not set: A, B$"):
        with_variables(["${B}${A}${B}"], {"A": ""})
