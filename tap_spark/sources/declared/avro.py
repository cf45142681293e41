"""Avro files."""

from __future__ import annotations

from shared.spark.packages import AVRO
from tap_spark.sources.reader_options import FILES, MODE, REBASE, Option, named
from tap_spark.sources.source_declaration import SourceFormat

SOURCE = SourceFormat(
    name="avro",
    implementation="tap_spark.sources.files.avro_files:AvroSource",
    places=("path",),
    takes=("options", "schema"),
    options=(
        *FILES,
        *MODE,
        *named("text", "avroSchema avroSchemaUrl stableIdentifierPrefixForUnionType"),
        *named("boolean", "ignoreExtension positionalFieldMatching"),
        *named("boolean", "enableStableIdentifiersForUnionType"),
        *named("integer", "recursiveFieldMaxDepth"),
        Option("datetimeRebaseMode", words=REBASE),
    ),
    resumes=True,
    needs=AVRO,
)
