"""XML files."""

from __future__ import annotations

from tap_spark.sources.reader_options import FILES, PARSED, TIMES, named
from tap_spark.sources.source_declaration import SourceFormat

SOURCE = SourceFormat(
    name="xml",
    implementation="tap_spark.sources.files.xml_files:XmlSource",
    places=("path",),
    takes=("options", "schema"),
    options=(
        *FILES,
        *TIMES,
        *PARSED,
        *named("text", "rowTag attributePrefix valueTag nullValue rowValidationXSDPath"),
        *named("text", "wildcardColName"),
        *named("boolean", "inferSchema excludeAttribute ignoreSurroundingSpaces ignoreNamespace"),
        *named("boolean", "multiLine preferDate prefersDecimal useLegacyXMLParser"),
    ),
    required_options={"rowTag": "the element that is a row"},
    resumes=True,
)
