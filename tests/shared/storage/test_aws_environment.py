"""The credentials of S3 that executors on other machines get."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shared.spark.s3a import REDACTED, aws_environment, executor_environment

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
S3A = {"spark.hadoop.fs.s3a.access.key": "a", "spark.hadoop.fs.s3a.secret.key": "b"}
NOWHERE = {"AWS_SHARED_CREDENTIALS_FILE": "/no/such/file"}


def test_credentials_of_the_environment_travel_with_their_place() -> None:
    environ = {**KEYS, "AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": "http://s3:1", "HOME": "/"}
    assert aws_environment({}, environ) == {
        **KEYS, "AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": "http://s3:1",
    }  # fmt: skip


def test_those_of_s3a_win_as_a_whole() -> None:
    actual = aws_environment(S3A, {**KEYS, "AWS_SESSION_TOKEN": "of the others"})
    assert actual == {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}


def test_an_endpoint_of_s3a_may_lack_its_scheme() -> None:
    conf = {**S3A, "spark.hadoop.fs.s3a.endpoint": "s3.example.org"}
    assert aws_environment(conf, {})["AWS_ENDPOINT_URL"] == "https://s3.example.org"


def test_a_profile_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    file.write_text("[etl]\naws_access_key_id = p\naws_secret_access_key = q\n")
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    environ = {"AWS_PROFILE": "etl", "AWS_SHARED_CREDENTIALS_FILE": str(file)}
    actual = {"AWS_ACCESS_KEY_ID": "p", "AWS_SECRET_ACCESS_KEY": "q"}
    assert aws_environment({}, environ) == actual


def test_without_credentials_nothing_travels() -> None:
    assert executor_environment({}, NOWHERE) == {}


def test_variables_of_the_user_are_kept() -> None:
    assert executor_environment({"spark.executorEnv.AWS_ACCESS_KEY_ID": "own"}, KEYS) == {}


def test_spark_masks_every_secret() -> None:
    conf = executor_environment({}, {**KEYS, "AWS_SESSION_TOKEN": "t"})
    pattern = re.compile(conf.pop("spark.redaction.regex"))
    assert len(conf) == 3
    assert all(pattern.search(name) for name in conf)
    assert re.compile(REDACTED).search("spark.hadoop.fs.s3a.access.key")
