"""Common parts of tap-spark and target-spark: messages, settings, types, encodings, Spark."""
