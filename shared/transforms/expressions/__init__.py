"""Expressions of stream maps: Python's syntax and results, computed by Spark."""
