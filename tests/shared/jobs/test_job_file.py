"""NamedJob files: named jobs, environments and variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.errors import InvalidSettingsError, SettingsError
from shared.settings.job_file import SCHEMA, NamedJob, job_of, read_job_file

ROOT = Path(__file__).resolve().parents[3]
ORDERS = {"tap": {"streams": []}, "target": {"path": "${LAKE}/orders"}}


def job(folder: Path, content: Any, name: str | None = None, **more: Any) -> NamedJob:
    file = folder / "job.yml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    environ = more.pop("environ", {"LAKE": "lake"})
    return job_of(read_job_file(str(file)), name, more.pop("env", None), environ)


def fails(folder: Path, content: Any, *args: Any, **more: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        job(folder, content, *args, **more)
    assert caught.value.exit_code == 2
    assert "job.yml" in str(caught.value)
    return str(caught.value)


def test_the_only_job_needs_no_name(tmp_path: Path) -> None:
    actual = job(tmp_path, {"jobs": {"orders": ORDERS}})
    assert (actual.name, actual.environment, actual.key) == ("orders", None, "orders")
    assert actual.target == ({"path": "lake/orders"},)
    assert actual.state == tmp_path / "state" / "orders.json"
    assert actual.history == tmp_path / "runs" / "orders"


def test_one_of_several_jobs_is_named(tmp_path: Path) -> None:
    content = {"jobs": {"orders": ORDERS, "users": {"tap": {}, "target": {"path": "u"}}}}
    assert job(tmp_path, content, "users").target == ({"path": "u"},)
    assert "give its name; the file has: orders, users" in fails(tmp_path, content)
    assert "no job 'order' (did you mean orders?)" in fails(tmp_path, content, "order")


def test_an_environment_has_variables_and_settings_of_its_own(tmp_path: Path) -> None:
    content = {
        "jobs": {"orders": ORDERS},
        "environments": {
            "dev": {"variables": {"LAKE": "out"}},
            "prod": {
                "variables": {"LAKE": "${BUCKET}/lake", "N": 4},
                "tap": {"parallel_streams": 2, "query": "${N} $$ $x"},
            },
        },
    }
    environ = {"LAKE": "of the shell", "BUCKET": "s3://b", "HOME": "/h"}
    dev = job(tmp_path, content, env="dev", environ=environ)
    assert (dev.target, dev.key) == (({"path": "out/orders"},), "orders.dev")
    prod = job(tmp_path, content, env="prod", environ=environ)
    assert prod.target == ({"path": "s3://b/lake/orders"},)
    assert prod.tap == ({"streams": []}, {"parallel_streams": 2, "query": "4 $ $x"})
    assert prod.variables == {**environ, "LAKE": "s3://b/lake", "N": "4"}
    assert {dev.state.name, prod.state.name} == {"orders.dev.json", "orders.prod.json"}
    assert "give --env; the file has: dev, prod" in fails(tmp_path, content)
    assert "no environment 'prd' (did you mean prod?)" in fails(tmp_path, content, env="prd")
    assert "there is no environment 'dev'" in fails(tmp_path, {"jobs": {"o": ORDERS}}, env="dev")


def test_numbers_and_booleans_fill_settings_of_their_own(tmp_path: Path) -> None:
    settings = {"n": "${N}", "list": ["${ON:-x}"], "text": "${N}0", "t": "${T}", "p": "${P}"}
    content = {
        "jobs": {"orders": {"tap": settings, "target": {}}},
        "environments": {"dev": {"variables": {"N": 2, "ON": False, "T": "3"}}},
    }
    (actual,) = job(tmp_path, content, env="dev", environ={"P": "4", "N": "9"}).tap
    assert actual == {"n": 2, "list": [False], "text": "20", "t": "3", "p": "4"}


def test_an_environment_without_settings_is_named_as_it_is(tmp_path: Path) -> None:
    content = {"jobs": {"orders": ORDERS}, "environments": {"dev": None}}
    assert "['dev']: null is not of type 'object'" in fails(tmp_path, content)


def test_a_job_without_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSettingsError, match=r"'orders': the file does not exist$"):
        read_job_file("orders")
    Path("job.yml").write_text("jobs: {}")
    with pytest.raises(InvalidSettingsError, match=r"give FILE before JOB: job.yml orders$"):
        read_job_file("orders")


def test_variables_come_from_dotenv_too(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("LAKE=dot\nPASSWORD='x'\n")
    actual = job(tmp_path, {"jobs": {"orders": ORDERS}}, environ={})
    assert actual.target == ({"path": "dot/orders"},)
    assert actual.variables["PASSWORD"] == "x"
    actual = job(tmp_path, {"jobs": {"orders": ORDERS}}, environ={"LAKE": "real"})
    assert actual.target == ({"path": "real/orders"},)


def test_a_line_of_dotenv_that_is_wrong_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("LAKE=x\nno value\n")
    line = fails(tmp_path, {"jobs": {"orders": ORDERS}})
    assert f"'{tmp_path / '.env'}': line 2 is not KEY=VALUE" in line


def test_a_variable_that_is_not_set_is_one_line(tmp_path: Path) -> None:
    line = fails(tmp_path, {"jobs": {"orders": ORDERS}}, environ={})
    assert "job 'orders': environment variables that are not set: LAKE" in line
    assert "\n" not in line


def test_settings_may_stand_in_files(tmp_path: Path) -> None:
    (tmp_path / "tap.json").write_text('// a comment\n{"path": "${LAKE}"}')
    content = {"jobs": {"orders": {"tap": "tap.json", "target": "no.toml"}}}
    assert "settings file 'no.toml': the file does not exist" in fails(tmp_path, content)
    content["jobs"]["orders"]["target"] = {}
    assert job(tmp_path, content).tap == ({"path": "lake"},)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("{", "not valid YAML"),
        ({}, "'jobs'"),
        ({"jobs": {}}, "no job given"),
        ({"jobs": {"a/b": ORDERS}}, "letters, digits, _ and -"),
        ({"jobs": {"a.b": ORDERS}}, "letters, digits, _ and -"),
        ({"jobs": {"a": {"tap": {}}}}, "target"),
        ({"jobs": {"a": {**ORDERS, "catalogue": "x"}}}, "did you mean"),
        ({"jobs": {"a": ORDERS}, "keep_runs": 0}, "keep_runs"),
        ({"jobs": {"a": ORDERS}, "environments": {"..": {}}}, "letters, digits, _ and -"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, content: Any, line: str) -> None:
    assert line in fails(tmp_path, content)


def test_without_a_name_the_file_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=r"write job\.yml"):
        read_job_file(None)
    (tmp_path / "jobs.yml").write_text("jobs: {}")
    assert read_job_file(None).path.name == "jobs.yml"


def test_errors_hide_secrets(tmp_path: Path) -> None:
    assert "hunter2" not in fails(tmp_path, {"jobs": {"a": {"tap": ["hunter2"], "target": {}}}})


def test_the_page_explains_every_setting() -> None:
    page = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in page for name in SCHEMA["properties"])


def test_the_sample_is_valid() -> None:
    file = read_job_file(str(ROOT / "sample_configs" / "job.yml"))
    environ = {"SHOP_PASSWORD": "x", "BUCKET": "b"}
    for name in file.settings["jobs"]:
        for environment in file.settings["environments"]:
            assert job_of(file, name, environment, environ).tap
