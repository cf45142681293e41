"""The settings of the engine, which both programs have."""

from __future__ import annotations

from dataclasses import dataclass

from shared.settings.checking import FORMER
from shared.settings.kinds import at_least, one_of, setting

AUTO, SPARK, THREADS = ENGINES = ("auto", "spark", "threads")
SPARK_ABOVE = 256 * 1024 * 1024


@dataclass(frozen=True)
class EngineSettings:
    """Where work on rows takes place."""

    engine: str = setting(
        {**one_of(ENGINES), FORMER: ["load_without_spark"]},
        "Where work on rows takes place: `spark`: always on Spark; `threads`: in threads of this "
        "program, which never starts Java; `auto`: in threads up to `spark_above`, then on Spark. "
        "See `singer-spark docs engines`.",
        default=AUTO,
    )
    spark_above: int = setting(
        at_least(0),
        "Bytes of text in a run up to which threads do the work, with `engine: auto`; four times "
        "as many of columnar files. See `singer-spark docs engines`.",
        default=SPARK_ABOVE,
    )
