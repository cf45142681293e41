"""`python -m shared.batch_config`."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from shared.batch_config import json_schema, main

ROOT = Path(__file__).parents[4]
RIGHT = {"batch": {"strategy": "memory_based", "memory_size": "64 MiB"}}


@pytest.fixture
def settings_file(tmp_path):
    def write(content):
        path = tmp_path / "settings.json"
        is_text = isinstance(content, (str, bytes))
        data = content if is_text else json.dumps(content)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    return write


def run(*args, **kwargs):
    command = [sys.executable, "-m", "shared.batch_config", *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **kwargs)


def test_right_settings_are_printed_in_base_units(settings_file, capsys):
    assert main([settings_file(RIGHT)]) == 0
    out, err = capsys.readouterr()
    word, _, data = out.partition("\n")
    assert word == "ok"
    assert json.loads(data) == {
        "side": None,
        "batch_config": None,
        "batch": {"strategy": "memory_based", "memory_bytes": 67108864},
        "failure": {
            "policy": "FailBatch",
            "max_retries": 0,
            "backoff_seconds": 0.0,
            "dead_letter_path": None,
        },
    }
    assert err == ""


def test_each_problem_is_a_line(settings_file, capsys):
    document = {"batch": {"strategy": "fixed_size", "size": 0, "x": 1}, "failure": {"policy": "y"}}
    assert main([settings_file(document)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.partition(":")[0] for line in err.splitlines()] == [
        "config['batch']['x']",
        "config['batch']['size']",
        "config['failure']['policy']",
    ]


@pytest.mark.parametrize(("side", "code"), [("tap", 2), ("target", 0)])
def test_the_side_can_be_named(settings_file, capsys, side, code):
    path = settings_file({"batch_config": {"cleanup": True}})
    assert main(["--side", side, path]) == code
    assert main([path]) == 0
    out, _ = capsys.readouterr()
    assert out.count("ok\n") == (2 if code == 0 else 1)


def test_warnings_do_not_fail(settings_file, capsys):
    assert main([settings_file({"batch": {"strategy": "mega_batch", "reuse_buffer": True}})]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("ok\n")
    [warning] = err.splitlines()
    assert warning.startswith("warning: config['batch']['reuse_buffer']: has no effect")


@pytest.mark.parametrize(
    ("key", "block"), [("batch_confg", "batch_config"), ("btch", "batch"), ("failures", "failure")]
)
def test_a_mistyped_block_is_warned_of(settings_file, capsys, key, block):
    assert main([settings_file({key: {}})]) == 0
    assert f"warning: config['{key}'] is not a batch setting" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["batch_size_rows", "batch_wait_limit_seconds", "path", "spark"])
def test_other_settings_are_passed_over(settings_file, capsys, key):
    assert main([settings_file({key: 1})]) == 0
    assert capsys.readouterr().err == ""


BROKEN = [
    ("", "not valid JSON: Expecting value at line 1, column 1"),
    ("{", "not valid JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
    ('{"a": 1,\n "b" 2}', "not valid JSON: Expecting ':' delimiter at line 2, column 6"),
    ('{"a": NaN}', "not valid JSON: NaN is not a JSON value"),
    ('{"a": Infinity}', "not valid JSON: Infinity is not a JSON value"),
    ("[]", "must hold one JSON object"),
    ("3", "must hold one JSON object"),
    ("null", "must hold one JSON object"),
    (b"\xff\xfe\xff", "not valid JSON: not Unicode text"),
    ('{"batch": {}, "batch": {}}', "the key 'batch' is given twice in one object"),
    ('{"batch": {"size": 1, "size": 2}}', "the key 'size' is given twice in one object"),
    ("[" * 100_000, "not valid JSON: nested too deeply"),
]


@pytest.mark.parametrize(("content", "message"), BROKEN, ids=[text[:60] for _, text in BROKEN])
def test_a_broken_file_is_one_clear_line(settings_file, capsys, content, message):
    path = settings_file(content)
    assert main([path]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"file {path!r}: {message}\n"


def test_an_enormous_number_is_one_clear_line(settings_file, capsys):
    assert main([settings_file('{"batch": {"size": ' + "9" * 5000 + "}}")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_missing_file_is_one_clear_line(tmp_path, capsys):
    path = str(tmp_path / "none.json")
    assert main([path]) == 2
    assert capsys.readouterr().err == f"file {path!r}: the file does not exist\n"


def test_a_folder_is_one_clear_line(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"file {str(tmp_path)!r}: cannot be read (Is a directory)\n"


def test_standard_input_is_read(monkeypatch, capsys):
    stdin = io.TextIOWrapper(io.BytesIO(json.dumps(RIGHT).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["-"]) == 0
    assert capsys.readouterr().out.startswith("ok\n")


@pytest.mark.parametrize("side", ["tap", "target", None])
def test_the_schema_is_printed(capsys, side):
    assert main(["--schema", *(["--side", side] if side else [])]) == 0
    printed = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(printed)
    assert printed == json_schema(side)


@pytest.mark.parametrize(
    "args", [[], ["a", "b"], ["--schema", "a"], ["--nonsense"], ["--side", "x", "a"]]
)
def test_wrong_usage_exits_with_2(args, capsys):
    with pytest.raises(SystemExit) as caught:
        main(args)
    assert caught.value.code == 2
    assert "usage: python -m shared.batch_config" in capsys.readouterr().err


SECRETS = [
    {"batch_config": {"storage": {"root": "x", "options": {"secret": "hunter2"}}}},
    {"batch_config": {"storage": {"root": "x", "options": "hunter2"}}},
    {"batch_config": {"storage": {"root": "x", "options": ["hunter2"]}}},
    {"batch_config": {"storage": {"root": "x", "secret": "hunter2"}}},
    {"batch_config": {"storage": {"root": "x", "opts": {"secret": "hunter2"}}}},
    {"batch_config": {"storage": "hunter2"}},
    {"batch_config": "hunter2"},
    {"batch_config": {"secret": "hunter2"}},
    {"batch_config": {"storage": {"root": "s3://key:hunter2@bucket"}}},
    {"batch_config": {"storage": {"root": "s3://key:hun/hunter2@bucket"}}},
    {"batch_config": {"storage": {"root": "https://h/x?sig=hunter2"}}},
    {"batch_config": {"storage": {"root": {"key": "hunter2"}}}},
    {"batch_config": {"allowed_roots": ["s3://key:hunter2@bucket"]}},
    {"batch": {"secret": "hunter2"}},
    {"failure": {"policy": "SendToDLQ", "dead_letter_path": "s3://k:hunter2@b"}},
    {"failure": {"policy": "SendToDLQ", "dead_letter_path": "https://h/?sig=hunter2"}},
    {"failure": {"policy": "SendToDLQ", "dead_leter_path": "s3://k:hunter2@b"}},
    {"failure": {"dead_letter_path": "s3://k:hunter2@b"}},
    {"dead_letter_path": "s3://k:hunter2@b"},
    {"sink.nonsense": "hunter2"},
]


@pytest.mark.parametrize("document", SECRETS, ids=str)
def test_no_secret_is_printed(settings_file, capsys, document):
    main([settings_file(document)])
    assert "hunter2" not in "".join(capsys.readouterr())


def test_it_runs_as_a_module_and_starts_fast(settings_file):
    path = settings_file(RIGHT)
    run(path)
    begin = time.perf_counter()
    done = run(path)
    seconds = time.perf_counter() - begin
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ok\n")
    assert seconds < 3  # 0.1 s alone; the bound only catches an import of Spark on a busy machine


def test_it_imports_neither_spark_nor_arrow():
    code = (
        "import sys, shared.batch_config as b; b.validate({'batch': {'strategy': 'fixed_size'}}); "
        "print(sorted({'pyspark', 'pyarrow', 'fsspec', 'jsonschema'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_it_reads_a_pipe():
    done = run("-", input=json.dumps({"batch": {"strategy": "x"}}))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("config['batch']['strategy']: 'x' is not allowed")
