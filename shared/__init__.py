"""What tap-spark and target-spark have in common: settings, messages, types, files, Spark, maps.

Imports neither program; both programs import it.
"""
