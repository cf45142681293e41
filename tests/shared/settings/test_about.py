"""--about in every format, and the pages generated from the same schema."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

import pytest

from shared.errors import EXIT_CODES
from shared.settings import about
from shared.settings.about import Program, settings_of
from shared.settings.batch_settings import BLOCKS
from tap_spark.config import PROGRAM as TAP
from tap_spark.config import tap_config
from target_spark.config import PROGRAM as TARGET
from target_spark.config import target_config
from tools import docs

ROOT = Path(__file__).resolve().parents[3]
BOTH = pytest.mark.parametrize("program", [TAP, TARGET], ids=["tap", "target"])

TINY = Program(
    name="tap-tiny",
    description="Tiny.",
    schema={
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"type": "string", "description": "One | two.", "secret": True},
            "b": {
                "type": "object",
                "properties": {
                    "c_d": {"type": "integer", "default": 3, "description": "C."},
                },
            },
            "e": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["f"],
                    "properties": {"f": {"type": ["string", "array"], "enum": ["x", "y"]}},
                },
            },
        },
    },
    rules=(),
    capabilities=("about",),
)


class TestAbout:
    def test_rows(self) -> None:
        rows = {row.name: row for row in settings_of(TINY)}
        assert list(rows) == ["a", "b", "b.c_d", "e", "e[].f"]
        assert (rows["a"].required, rows["a"].variable) == (True, "TAP_TINY_A")
        assert rows["a"].description == "One | two. Secret."
        assert (rows["b.c_d"].default, rows["b.c_d"].variable) == ("3", "TAP_TINY_B__C_D")
        assert (rows["e[].f"].types, rows["e[].f"].variable) == ("string or array", "")
        assert rows["e[].f"].required
        assert "One of `x`, `y`." in rows["e[].f"].description

    @BOTH
    def test_json_has_the_keys_of_the_sdk(self, program: Program) -> None:
        data = json.loads(about.about_json(program))
        assert list(data) == [
            "name",
            "description",
            "version",
            "sdk_version",
            "supported_python_versions",
            "capabilities",
            "settings",
        ]
        assert data["version"] == metadata.version("singer-spark")
        assert data["supported_python_versions"] == ["3.10", "3.11", "3.12", "3.13"]
        assert data["settings"] == program.schema

    @BOTH
    def test_every_setting_in_every_format(self, program: Program) -> None:
        text, page = about.about_text(program), about.about_markdown(program)
        for row in settings_of(program):
            assert f"  - Name: {row.name}\n" in text
            assert f"| `{row.name}` |" in page

    def test_bars_are_escaped_in_tables(self) -> None:
        assert "One \\| two." in about.about_markdown(TINY)

    def test_package_that_is_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(about, "PACKAGE", "no-such-package-here")
        assert about.version() == "0+unknown"
        assert about.python_versions() == []

    @BOTH
    def test_schema_is_valid_and_every_default_fits(self, program: Program) -> None:
        from jsonschema import Draft202012Validator

        Draft202012Validator.check_schema(program.schema)
        for row in settings_of(program):
            for value in [*row.schema.get("examples", []), row.schema.get("default")]:
                if value is not None:
                    Draft202012Validator(row.schema).validate(value)

    @BOTH
    def test_editors_get_a_schema_of_settings_files(self, program: Program) -> None:
        from jsonschema import Draft7Validator

        package = ROOT / program.name.replace("-", "_")
        text = (package / "settings.schema.json").read_text()
        assert json.loads(text) == json.loads(about.ABOUT_FORMATS["json-schema"](program))
        assert '"x-' not in text
        Draft7Validator.check_schema(json.loads(text))
        checked = Draft7Validator(json.loads(text))
        for path in SAMPLES:
            if path.name.startswith(program.name[:4]):
                checked.validate({"$schema": "x.json", **json.loads(path.read_text())})
        errors = [error.message for error in checked.iter_errors({"pathh": "x"})]
        assert any("'pathh' was unexpected" in message for message in errors)

    @BOTH
    def test_no_object_takes_unknown_keys_silently(self, program: Program) -> None:
        # `shared.batch_config` declares those of the batch blocks.
        rows = (row for row in settings_of(program) if row.name.split(".")[0] not in BLOCKS)
        for row in rows:
            for schema in (row.schema, row.schema.get("items", {})):
                if schema.get("type") == "object":
                    assert "additionalProperties" in schema, row.name

    @BOTH
    def test_remote_is_secret(self, program: Program) -> None:
        rows = {row.name: row for row in settings_of(program)}
        assert rows["spark.remote"].schema["secret"] is True


class TestPages:
    def test_nothing_in_the_repository_is_stale(self) -> None:
        assert [str(path) for path, _ in docs.stale_pages(ROOT)] == []

    def test_writing_then_checking(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert docs.main(["--check"], tmp_path) == 1
        assert "stale: docs/settings.md" in capsys.readouterr().err
        assert docs.main([], tmp_path) == 0
        assert docs.main(["--check"], tmp_path) == 0
        (tmp_path / "docs/errors.md").write_text("old")
        capsys.readouterr()
        assert docs.main(["--check"], tmp_path) == 1
        assert capsys.readouterr().err == "stale: docs/errors.md\n"
        assert (tmp_path / "docs/errors.md").read_text() == "old"

    def test_unknown_argument(self, tmp_path: Path) -> None:
        assert docs.main(["--chekc"], tmp_path) == 2
        assert list(tmp_path.iterdir()) == []

    def test_stale_pages_get_their_tables(self, tmp_path: Path) -> None:
        (tmp_path / "docs").mkdir()
        settings, errors = tmp_path / "docs/settings.md", tmp_path / "docs/errors.md"
        settings.write_text("# A\nSTALE\n")
        errors.write_text("STALE\n")
        docs.main([], tmp_path)
        text = settings.read_text()
        assert "STALE" not in text + errors.read_text()
        for program in (TAP, TARGET):
            rows = about.table_of(about.settings_of(program)).replace(
                f"`{program.env_prefix}", "`…"
            )
            shown = text.replace(f"`{program.env_prefix}", "`…").splitlines()
            of_batch_page = re.compile(r"\| `(batch_config|batch|failure)\.").match
            own = {row for row in docs.with_links(rows).splitlines() if not of_batch_page(row)}
            assert own <= set(shown)
        assert docs.exit_code_table() in errors.read_text()
        assert docs.main(["--check"], tmp_path) == 0

    def test_hand_written_pages_stay(self, tmp_path: Path) -> None:
        (tmp_path / "README.md").write_text("# A\n")
        docs.main([], tmp_path)
        assert (tmp_path / "README.md").read_text() == "# A\n"

    def test_every_exit_code_is_listed(self) -> None:
        page = docs.errors_page()
        codes = [error.exit_code for error in EXIT_CODES]
        assert len(set(codes)) == len(codes)
        for error in EXIT_CODES:
            assert f"| {error.exit_code} | {error.meaning} |" in page


SAMPLES = sorted((ROOT / "sample_configs").glob("ta[pr]*-*.json"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_sample_files_are_valid(path: Path) -> None:
    settings = json.loads(path.read_text())
    check = tap_config if path.name.startswith("tap") else target_config
    check(settings)


def test_there_are_sample_files() -> None:
    assert {path.name for path in SAMPLES} >= {
        "tap-csv.json",
        "tap-rows.json",
        "target-parquet.json",
    }
