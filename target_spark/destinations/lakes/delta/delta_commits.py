"""Commits by the package `deltalake`: with our marks, once, and left to Spark if it cannot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from target_spark.destinations.lakes.lake_format import NeedsSparkError

if TYPE_CHECKING:
    from deltalake import DeltaTable

Transaction = tuple[str, int]
"""Application and version of a commit."""


def commit_arguments(
    metadata: str, transaction: Transaction | None = None, *, retries: int | None = 0
) -> dict[str, Any]:
    """Return the arguments that every committing method of the package takes.

    Args:
        metadata: Metadata of the commit.
        transaction: See `Transaction`, if the commit has one.
        retries: Retries after commits of others that do not conflict; None for the package's.
    """
    import deltalake  # noqa: PLC0415

    at = int(time.time() * 1000)
    made = [deltalake.Transaction(*transaction, at)] if transaction else None
    hooks = deltalake.PostCommitHookProperties(cleanup_expired_logs=False)
    return {
        "commit_properties": deltalake.CommitProperties(
            custom_metadata={"userMetadata": metadata},
            app_transactions=made,
            max_commit_retries=retries,
        ),
        "post_commithook_properties": hooks,
    }


def has_transaction(table: DeltaTable, transaction: Transaction | None) -> bool:
    """Return whether a table has a transaction, or a later one of its application."""
    if transaction is None:
        return False
    application, version = transaction
    return (table.transaction_version(application) or -1) >= version


@contextmanager
def left_to_spark(*also: type[Exception]) -> Iterator[None]:
    """Raise NeedsSparkError for what the package cannot do, but not for a lost commit.

    Args:
        *also: Other errors that mean the same.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError  # noqa: PLC0415

    missing: tuple[type[Exception], ...] = (DeltaError, *also)
    try:
        yield
    except CommitFailedError:
        raise
    except missing as error:
        raise NeedsSparkError from error
