"""A target of your own that reads BATCH messages."""

import json
from pathlib import Path

from target_spark import process_batch_files, read_batch_tables

schemas = {}
rows = 0
amount = 0
with Path("messages.jsonl").open() as source:  # a target reads its standard input
    for line in source:
        message = json.loads(line)
        if message["type"] == "SCHEMA":
            schemas[message["stream"]] = message["schema"]
        elif message["type"] == "BATCH":
            encoding, files = message["encoding"], message["manifest"]
            for record in process_batch_files(encoding, None, files):
                amount += record["total"]
            schema = schemas[message["stream"]]
            for table in read_batch_tables(encoding, None, files, schema):
                rows += table.num_rows
        elif message["type"] == "STATE":
            # Only once everything before it is stored for good.
            print(json.dumps(message["value"]))
print(rows, "rows,", amount, "in all")
