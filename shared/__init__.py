"""What tap-spark and target-spark have in common: settings, messages, types, files, Spark, maps.

Imports neither program, but for `settings.docs`, which documents both; both programs import it.
"""
