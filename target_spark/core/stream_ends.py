"""Whether the input shows that a stream is complete, before its table is replaced. Pure.

Standard input ends in the same way if the tap has finished and if it has died. A STATE or an
ACTIVATE_VERSION after the last record tells the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class StreamEnd:
    """What has come of one stream, as far as it tells whether the stream is complete.

    Attributes:
        last_line: Line of stdin of its last RECORD or BATCH; without one, of its SCHEMA.
        has_rows: Whether a RECORD or BATCH has come.
        version: Table version of the last one that has a version.
        activated: The last version that ACTIVATE_VERSION named.
        activated_line: Line of that message.
        has_failed: Whether the tap has reported that the stream failed.
        has_bookmark: Whether its SCHEMA names the properties of a bookmark.
    """

    last_line: int = 0
    has_rows: bool = False
    version: int | None = None
    activated: int = -1
    activated_line: int = 0
    has_failed: bool = False
    has_bookmark: bool = False

    def add_rows(self, line: int, version: int | None) -> None:
        """Record a RECORD or BATCH message."""
        self.last_line, self.has_rows = line, True
        self.version = self.version if version is None else version

    def activate(self, line: int, version: int) -> None:
        """Record an ACTIVATE_VERSION message."""
        self.activated, self.activated_line = version, line

    def awaits_state(self, state_line: int) -> bool:
        """Return whether a STATE was to be expected after the last record.

        Args:
            state_line: Line of the last STATE; 0 without one.
        """
        is_open = self.version is not None and self.activated_line < self.last_line
        return is_open or self.has_bookmark or state_line > 0

    def gap(self, state_line: int) -> str | None:
        """Return what is missing at the end of the input; None if the stream is complete.

        Taps differ in what they send last: tap-spark ends a FULL_TABLE stream with
        ACTIVATE_VERSION and a STATE, the Meltano SDK activates the version first and ends with a
        STATE, and some taps send neither. Of the last, records without a version count as complete.

        Args:
            state_line: Line of the last STATE; 0 without one.
        """
        if self.has_failed:
            return "the tap reports that the stream failed"
        if self.version is not None and self.version > self.activated:
            return "its records came without their ACTIVATE_VERSION"
        if state_line > self.last_line:
            return None
        if not self.has_rows:
            return "nothing came after its SCHEMA, not even a STATE"
        is_silent = not state_line and self.version is None
        if is_silent or self.activated_line > self.last_line:
            return None
        return "no STATE came after its last record"
