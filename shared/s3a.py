"""Spark's own way to S3, S3A: which class and package it is, and how it finds what SDKs find. Pure.

Secrets are never put into Spark's configuration: Java looks them up itself.
"""

from __future__ import annotations

from collections.abc import Mapping

CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
PACKAGE = "org.apache.hadoop:hadoop-aws:3.4.2"
"""Maven coordinates of the version that Spark 4.1's Hadoop goes with; brings Amazon's SDK."""

MISSING = (f"{CLASS} not found", 'No FileSystem for scheme "s3', "UNSUPPORTED_FILE_SYSTEM")
"""Texts, any of which tells that Spark knows no way to S3."""

HINT = f'add "{PACKAGE}" to spark.packages (docs/s3.md)'

_PROVIDERS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
)
"""Those of `spark.conf`, then whatever Amazon's SDKs find: environment, profile, role."""


def s3a_conf(environ: Mapping[str, str]) -> dict[str, str]:
    """Build the Hadoop configuration by which S3A serves `s3://` as an AWS SDK would.

    Args:
        environ: The environment; only where the endpoint and the region are taken from it.
    """
    conf = {"fs.s3.impl": CLASS, "fs.s3a.aws.credentials.provider": ",".join(_PROVIDERS)}
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if endpoint:
        conf |= {"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": "true"}
    if region:
        conf["fs.s3a.endpoint.region"] = region
    return conf
