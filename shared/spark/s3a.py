"""S3A, by which Spark reads S3: its class, its package, and where it finds credentials. Pure.

Secrets are not put into Spark's configuration, as Java looks them up itself; only options of a
table's storage are, in the session of that table alone.
"""

from __future__ import annotations

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

    Args:
        options: As `StorageOptions.for_url` returns them.
    """
    values = {**(options.get("client_kwargs") or {}), **options}
    conf = {name: str(values[key]) for key, name in _NAMES.items() if values.get(key)}
    if "fs.s3a.endpoint" in conf:
        conf["fs.s3a.path.style.access"] = "true"
    return conf


def s3a_conf(environ: Mapping[str, str]) -> dict[str, str]:
    """Build the Hadoop configuration by which S3A serves `s3://` as an AWS SDK would.

    Args:
        environ: The environment; only the endpoint and the region are taken from it.
    """
    conf = {"fs.s3.impl": CLASS, "fs.s3a.aws.credentials.provider": ",".join(_PROVIDERS)}
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if endpoint:
        conf |= {"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": "true"}
    if region:
        conf["fs.s3a.endpoint.region"] = region
    return conf
