"""What tap-spark and target-spark have in common: messages, settings, types, encodings, Spark."""
