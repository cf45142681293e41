"""XML: one row per element of the option `rowTag`, with types that keep every value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from tap_spark.sources.files.file_source import FileSource, corrupt_options, parse_ddl
from tap_spark.sources.files.inference import PARSING, TIMES, exact_casts, infer_types
from tap_spark.sources.frame_helpers import CORRUPT, widen_inferred, without_corrupt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

WRONG = "it is not well-formed, or has a value of another type than 'schema'"
_SHAPED = (StructType, ArrayType, MapType, VariantType)


class XmlSource(FileSource):
    """XML files.

    Types of top-level values are inferred as for CSV; nested values stay text unless the setting
    `schema` or the option `inferSchema` sets their types.
    """

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`."""
        if self.stream.schema:
            return parse_ddl(self, spark)
        struct = self._reader(spark).options(**self._inference()).xml(self.paths).schema
        fields = [field for field in struct.fields if field.name != CORRUPT]
        if not fields:
            tag = self.option("rowTag")
            raise self.error(f"the files have no element <{tag}>", "check 'rowTag'")
        struct = StructType([StructField(f.name, widen_inferred(f.dataType), True) for f in fields])
        if self.flag("inferSchema"):
            return struct
        return self._typed(spark, struct)

    def rows(self, spark: SparkSession, urls: list[str], struct: StructType) -> DataFrame:
        """See `FileSource.rows`."""
        fields = [StructField(f.name, self._parsed(f.dataType), True) for f in struct.fields]
        reader = self._reader(spark)
        here = F.input_file_name()
        if self.option("mode"):
            frame = reader.schema(StructType(fields)).xml(urls)
            return exact_casts(frame, struct, here, by_value=self._is_typed)
        fields.append(StructField(CORRUPT, StringType()))
        frame = reader.schema(StructType(fields)).xml(urls)
        frame = without_corrupt(frame, WRONG)
        return exact_casts(frame, struct, here, by_value=self._is_typed)

    def _typed(self, spark: SparkSession, struct: StructType) -> StructType:
        """Return the struct with types for top-level text that keep every value as written."""
        names = [f.name for f in struct.fields if isinstance(f.dataType, StringType)]
        found = infer_types(self.rows(spark, self.paths, struct), names) if names else []
        types = dict(zip(names, found, strict=True))
        return StructType(
            [StructField(f.name, types.get(f.name, f.dataType), True) for f in struct.fields]
        )

    def _parsed(self, dtype: DataType) -> DataType:
        """Return the type for Spark's parser: text, unless it is one whose values it keeps."""
        has_form = self._is_typed and any(self.option(name) for name in PARSING)
        by_spark: tuple[type[DataType], ...] = (IntegralType, BooleanType) if self._is_typed else ()
        by_spark += TIMES if has_form else ()
        return dtype if isinstance(dtype, (*_SHAPED, *by_spark)) else StringType()

    @property
    def _is_typed(self) -> bool:
        return bool(self.stream.schema) or self.flag("inferSchema")

    def _inference(self) -> dict[str, str]:
        return {} if self.option("inferSchema") else {"inferSchema": "false"}

    def _reader(self, spark: SparkSession) -> DataFrameReader:
        return spark.read.options(**self.options(**corrupt_options(self, CORRUPT)))
