"""What tap-spark and target-spark have in common: settings, messages, types, files, Spark, maps.

Imports neither program; both import it.
"""

IS_OF_SINGER_SPARK = True
"""Tells this package from others of its name; `singer_spark` looks for it."""
