"""The credentials of S3 that executors on other machines get: those of this program.

s3fs, Arrow and S3A alike look into the environment of their process, so that one place serves all.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

_log = logging.getLogger(__name__)

_S3A = {
    "AWS_ACCESS_KEY_ID": "spark.hadoop.fs.s3a.access.key",
    "AWS_SECRET_ACCESS_KEY": "spark.hadoop.fs.s3a.secret.key",
    "AWS_SESSION_TOKEN": "spark.hadoop.fs.s3a.session.token",
}
_PLACES = {
    "AWS_ENDPOINT_URL": "spark.hadoop.fs.s3a.endpoint",
    "AWS_ENDPOINT_URL_S3": "",
    "AWS_REGION": "spark.hadoop.fs.s3a.endpoint.region",
    "AWS_DEFAULT_REGION": "",
}
_KEY = "AWS_ACCESS_KEY_ID"
_OF_A_MACHINE = {"iam-role", "container-role"}
"""How botocore calls credentials that each machine gets for itself."""

REDACTED = "(?i)secret|password|passwd|token|access[._]?key"
"""Names of settings whose values Spark masks in its pages and event logs."""


def aws_environment(conf: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables by which another process finds the same S3 with the same credentials.

    Credentials are those of S3A in the Spark configuration, else of the environment, else of a
    profile. Roles of machines stay with their machines.

    Args:
        conf: The Spark configuration.
        environ: The environment of this program.
    """
    values = {name: conf[key] for name, key in _S3A.items() if conf.get(key)}
    if _KEY not in values:
        values = {name: environ[name] for name in _S3A if environ.get(name)}
    if _KEY not in values:
        values = _of_profile(environ)
    for name, key in _PLACES.items():
        place = conf.get(key) or environ.get(name)
        if place:
            is_host = name == "AWS_ENDPOINT_URL" and "://" not in place
            values[name] = f"https://{place}" if is_host else place
    return values


def executor_environment(conf: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark configuration that gives executors these variables.

    Args:
        conf: The Spark configuration, which is kept.
        environ: The environment of this program.
    """
    variables = {
        f"spark.executorEnv.{name}": text for name, text in aws_environment(conf, environ).items()
    }
    if not variables or any(name in conf for name in variables):
        return {}
    return {"spark.redaction.regex": REDACTED, **variables}


def _of_profile(environ: Mapping[str, str]) -> dict[str, str]:
    shared = environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    if "AWS_PROFILE" not in environ and not Path(shared).expanduser().exists():
        return {}
    import botocore.session  # noqa: PLC0415

    try:
        credentials = botocore.session.Session(profile=environ.get("AWS_PROFILE")).get_credentials()
        if credentials is None or credentials.method in _OF_A_MACHINE:
            return {}
        frozen = credentials.get_frozen_credentials()
    except Exception as error:  # reading S3 itself says what is wrong, if S3 is read at all
        _log.debug("no credentials of a profile: %s", error)
        return {}
    values = zip(_S3A, (frozen.access_key, frozen.secret_key, frozen.token), strict=True)
    return {name: value for name, value in values if value}
