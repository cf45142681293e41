"""Spark: Java, the session, packages and what Spark fails with.

Imports only `shared.singer`, `shared.settings`, `shared.storage` and `shared.errors`.
"""
