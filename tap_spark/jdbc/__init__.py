"""Databases read over JDBC: URLs, dialects, metadata, and parallel reads."""
