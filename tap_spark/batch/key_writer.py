"""The KEYS message of one stream: a key set in files, announced as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.singer.messages import keys_line
from tap_spark.batch.batch_writer import BatchWriter
from tap_spark.output.record_writer import ChunkInfo

if TYPE_CHECKING:
    from tap_spark.batch.batch_plan import WrittenFile
    from tap_spark.output.line_chunks import KeyMax


class KeyWriter(BatchWriter):
    """Writes slices as files that only `finish` announces: half a key set would delete rows."""

    _urls: tuple[str, ...] = ()

    def finish(self) -> None:
        """Write the message with all files.

        Raises:
            ClosedPipeError: The reader of standard output has closed it.
            DestinationError: The files cannot be written.
        """
        with self._explained():
            for url in self._urls:
                self._publish(url)
        encoding = {"format": self._batch.format, "compression": self._batch.compression}
        # Recorded first: a reader may have the line even if writing it fails.
        self._announced.update(self._urls)
        self._output.write(keys_line(self._plan.stream, encoding, self._urls))

    def _announce(self, written: WrittenFile, key: KeyMax | None) -> None:
        self._urls += (written.url,)
        self._count(ChunkInfo(written.rows, written.size, key))
