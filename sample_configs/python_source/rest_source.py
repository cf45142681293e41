"""A REST API as a Singer stream: a Spark data source in one file, read by tap-spark.

The API answers `GET URL?page=1&per_page=100[&since=MOMENT]` with
`{"pages": 7, "items": [{"id": 1, "name": "...", "amount": "1.50", "updated_at": "..."}]}`.

Options: `url`; `token` (sent as a bearer token); `per_page`.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

TRIES = 4
TIMEOUT_SECONDS = 30
TRY_AGAIN = (429, 500, 502, 503, 504)


class RestSource(DataSource):
    """Tell Spark the columns and the reader."""

    def schema(self) -> str:
        return "id BIGINT NOT NULL, name STRING, amount DECIMAL(12,2), updated_at TIMESTAMP"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return RestReader(dict(self.options))


class RestReader(DataSourceReader):
    """Read each page as a partition of its own, so that Spark reads several at once."""

    def __init__(self, options: dict[str, str]) -> None:
        self.url = options["url"]
        self.token = options.get("token")
        self.query = {"per_page": options.get("per_page", "100")}
        # tap-spark adds this in incremental runs: request only rows from the bookmark on.
        if "singer_start_value" in options:
            self.query["since"] = options["singer_start_value"]

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each page; runs once."""
        pages = self.ask(1)["pages"]
        return [InputPartition(page) for page in range(1, pages + 1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of one page, in the order of `schema`; runs on an executor."""
        for item in self.ask(partition.value)["items"]:
            yield (
                item["id"],
                item["name"],
                Decimal(item["amount"]),
                datetime.fromisoformat(item["updated_at"]),
            )

    def ask(self, page: int) -> dict[str, Any]:
        """Request one page; retry if the API is busy."""
        query = urllib.parse.urlencode({**self.query, "page": page})
        request = urllib.request.Request(f"{self.url}?{query}")
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        for wait in range(TRIES):
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                    answered: dict[str, Any] = json.load(answer)
                    return answered
            except urllib.error.HTTPError as error:
                if error.code not in TRY_AGAIN or wait == TRIES - 1:
                    raise
            time.sleep(2**wait)
        raise AssertionError
