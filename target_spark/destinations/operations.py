"""The contract of operating: what can be done with the tables of a destination beside loading.

`Destination` is the contract of loading, and needs nothing of this one. A destination that has
operations declares a subclass of `Operations`; a run that only loads never opens it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shared.errors import DestinationError, SettingsError, Where
from target_spark.core.differences import Verification
from target_spark.destinations.destination import Flush, Tools
from target_spark.run_settings import TargetConfig


@dataclass
class Operations:
    """The operations of one destination: by default none, which each method says.

    Attributes:
        config: The settings.
        destination: The opened destination.
        tools: Its tools.
    """

    config: TargetConfig
    destination: Any
    tools: Tools

    def verify(self, flushes: Sequence[Flush], wanted: Verification) -> None:  # noqa: ARG002
        """Compare all rows of a stream with its table, and repair what differs if that is wanted.

        Nothing is loaded; the parts are removed in the end. May be repeated.

        Args:
            flushes: All flushes of the stream, at least one, with the method `overwrite`.
            wanted: How to compare; is given the difference.

        Raises:
            DifferenceError: A repair would delete too many rows.
            DestinationError: The table does not exist, or cannot be read.
        """
        raise self._lacks("compare tables with their source", "verify")

    def audit(self, checks: Callable[[str], Sequence[str]]) -> list[str]:  # noqa: ARG002
        """Check the rows of all streams that wait to be published (`write_audit_publish`).

        Args:
            checks: Stream → conditions that no row of its table may meet.

        Returns:
            What is wrong, one line each; also conditions that cannot be evaluated.

        Raises:
            DestinationError: A table cannot be read.
        """
        raise self._lacks("hold rows back and audit them", "audit")

    def staged(self) -> list[str]:
        """Return where the rows are that wait to be published, for people."""
        raise self._lacks("hold rows back and audit them", "staged")

    def publish(self) -> None:
        """Make all rows that wait visible, each table in one step, durably. May be repeated.

        Raises:
            DestinationError: It failed; what was not published stays as it is.
        """
        raise self._lacks("publish rows that were held back", "publish")

    def _lacks(self, what: str, method: str) -> SettingsError:
        return SettingsError(
            f"the destination '{self.config.format}' cannot {what}: it lacks `Operations.{method}`",
            where=Where(setting="format"),
            hint="it only loads; its declaration names operations by `operate`",
        )


def missing_table(table: str, stream: str, *, repairs: bool) -> DestinationError:
    """Return the error of a comparison with a missing table, which a repair creates (`repairs`)."""
    return DestinationError(
        f"{table} does not exist",
        where=Where(stream=stream),
        hint="load the stream first, or give --repair" if repairs else "load the stream first",
        lasts=True,
    )
