"""Classes of users as sources: plain Python (`RowSource`), and data sources of Spark 4."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sysconfig
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pyspark.cloudpickle import register_pickle_by_value

from shared.errors import SettingsError, SourceError, Where
from shared.singer.platform import see_current_folder
from shared.spark.spark_release import installed
from tap_spark.sources.files.file_source import parse_ddl
from tap_spark.sources.frame_source import FrameSource
from tap_spark.sources.row_source import RowSource
from tap_spark.state.stream_plans import StreamPlan
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
START_VALUE = "singer_start_value"
END_VALUE = "singer_end_value"
REPLICATION_KEY = "singer_replication_key"
IMPORT_HINT = "package.module.Class is imported from the working directory and PYTHONPATH"
PANDAS_HINT = "pip install 'singer-spark[python-sources]'"
_PLAIN = re.compile(r"\W")


def python_source(stream: StreamConfig) -> FrameSource:
    """Build the source of a class: a `RowSource`, or a DataSource of Spark.

    Raises:
        SettingsError: pandas is missing.
        SourceError: The class cannot be imported, or is neither.
    """
    module_name, _, name = stream.format.rpartition(".")
    module = _module(stream, module_name)
    source_class = getattr(module, name, None)
    if source_class is None:
        raise _refused(stream, f"the module '{module_name}' has no '{name}'")
    if isinstance(source_class, type) and issubclass(source_class, RowSource):
        _ship(module)
        return source_class(stream)
    _check_pandas(stream)
    try:
        from pyspark.sql.datasource import DataSource  # noqa: PLC0415
    except ImportError:
        raise _refused(
            stream, f"Spark {installed().line} has no sources in Python: 4.0 or later is needed"
        ) from None
    if not (isinstance(source_class, type) and issubclass(source_class, DataSource)):
        raise _refused(
            stream,
            f"'{stream.format}' is not a pyspark.sql.datasource.DataSource, nor a "
            "tap_spark.sources.row_source.RowSource",
        )
    _ship(module)
    return PythonSource(stream, source_class)


class PythonSource(FrameSource):
    """The rows of a `pyspark.sql.datasource.DataSource`.

    With a replication key the class gets the options `singer_replication_key` and, if there is a
    bookmark or start date, `singer_start_value`, and with an end date `singer_end_value`; rows out
    of these bounds are filtered out anyway.
    """

    def __init__(self, stream: StreamConfig, source: type[DataSource]) -> None:
        super().__init__(stream)
        self.source = _named_apart(stream.format, source)

    def frame(self, spark: SparkSession, plan: StreamPlan | None) -> DataFrame:
        spark.conf.set(PUSHDOWN, "true")
        spark.dataSource.register(self.source)
        reader = spark.read.format(self.source.name()).options(**self.stream.options)
        if plan is not None and plan.replication_key is not None:
            reader = reader.option(REPLICATION_KEY, plan.replication_key)
            if plan.start_value is not None:
                reader = reader.option(START_VALUE, str(plan.start_value))
            if plan.end_value is not None:
                reader = reader.option(END_VALUE, str(plan.end_value))
        if self.stream.schema:
            reader = reader.schema(parse_ddl(self, spark))
        paths = self.stream.paths
        return reader.load(paths[0]) if paths else reader.load()


def _module(stream: StreamConfig, name: str) -> ModuleType:
    see_current_folder()
    try:
        return importlib.import_module(name)
    except Exception as error:
        text = str(error) or type(error).__name__
        if "pandas" in text:
            _check_pandas(stream)
        if not isinstance(error, ImportError):
            text = f"{type(error).__name__}: {text}"
        raise _refused(stream, f"cannot import '{name}': {text}") from error


def _check_pandas(stream: StreamConfig) -> None:
    if importlib.util.find_spec("pandas") is None:  # PySpark imports it
        raise SettingsError(
            "a Python data source needs the package pandas", where=_where(stream), hint=PANDAS_HINT
        )


def _refused(stream: StreamConfig, message: str) -> SourceError:
    return SourceError(message, where=_where(stream), hint=IMPORT_HINT)


def _where(stream: StreamConfig) -> Where:
    return Where(stream=stream.name, setting="format")


def _ship(module: ModuleType) -> None:
    """Send the module's code with each task, as executors may not have its file.

    Installed packages are not sent: they may be large, and must be installed on executors, too.
    """
    file = os.path.realpath(getattr(module, "__file__", None) or "")
    installed = {os.path.realpath(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}
    if any(file.startswith(folder + os.sep) for folder in installed):
        return
    package = importlib.import_module(module.__name__.partition(".")[0])
    register_pickle_by_value(package)  # type: ignore[no-untyped-call]


def _named_apart(place: str, source: type[DataSource]) -> type[DataSource]:
    """Give the class a name that differs from Spark's formats and from other classes."""
    digest = hashlib.sha256(place.encode()).hexdigest()[:8]
    name = f"tap_spark_{_PLAIN.sub('_', place)}_{digest}"
    body: dict[str, Any] = {"name": classmethod(lambda _: name), "__module__": source.__module__}
    return type(source.__name__, (source,), body)
