"""target-spark: load Singer RECORD and BATCH messages with Spark."""
