"""tap-spark: read anything Spark can read and stream it as Singer messages."""
