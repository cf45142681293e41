"""S3A, by which Spark reads S3: its class, its package, and where it finds credentials.

Secrets are not put into Spark's configuration, as Java looks them up itself; only options of a
table's storage are, in the session of that table alone. Executors on other machines get the
credentials of this program in their environment, where s3fs, Arrow and S3A alike look.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from shared.spark.spark_release import installed

CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
PACKAGE = installed().packages["s3"]
"""Maven coordinates of the version for Spark's own Hadoop; brings Amazon's SDK."""

NOT_THERE = (f"{CLASS} not found", 'No FileSystem for scheme "s3')
MISSING = (*NOT_THERE, "UNSUPPORTED_FILE_SYSTEM")
"""Texts of failures that mean that Spark has no S3 client."""

HINT = f'add "{PACKAGE}" to spark.packages (`singer-spark docs s3`)'

_PROVIDERS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
)
"""Those of `spark.conf`, then those of Amazon's SDKs: environment, profile, role."""


_NAMES = {
    "key": "fs.s3a.access.key",
    "secret": "fs.s3a.secret.key",
    "token": "fs.s3a.session.token",
    "aws_access_key_id": "fs.s3a.access.key",
    "aws_secret_access_key": "fs.s3a.secret.key",
    "aws_session_token": "fs.s3a.session.token",
    "endpoint_url": "fs.s3a.endpoint",
    "region_name": "fs.s3a.endpoint.region",
}
"""Options of s3fs, and of its client, as S3A calls them."""


def s3a_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Translate options of s3fs for credentials and endpoint to S3A; ignore others.

    The result holds secrets, under names that Spark leaves out of its logs.
    """
    values = {**(options.get("client_kwargs") or {}), **options}
    conf = {name: str(values[key]) for key, name in _NAMES.items() if values.get(key)}
    if "fs.s3a.endpoint" in conf:
        conf["fs.s3a.path.style.access"] = "true"
    return conf


def s3a_conf(environ: Mapping[str, str]) -> dict[str, str]:
    """Build the Hadoop configuration by which S3A serves `s3://` as an AWS SDK would."""
    conf = {"fs.s3.impl": CLASS, "fs.s3a.aws.credentials.provider": ",".join(_PROVIDERS)}
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if endpoint:
        conf |= {"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": "true"}
    if region:
        conf["fs.s3a.endpoint.region"] = region
    return conf


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
    """Return the Spark configuration that gives executors these variables."""
    variables = {
        f"spark.executorEnv.{name}": text for name, text in aws_environment(conf, environ).items()
    }
    if not variables or any(name in conf for name in variables):
        return {}
    return {"spark.redaction.regex": REDACTED, **variables}


def _of_profile(environ: Mapping[str, str]) -> dict[str, str]:
    shared = environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    shared = os.path.expanduser(shared)  # noqa: PTH111
    if "AWS_PROFILE" not in environ and not os.path.exists(shared):  # noqa: PTH110
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
