"""Spark: Java, the session, packages and what Spark fails with.

Imports only `shared.errors`, `shared.settings` and `shared.storage`. `maps` and both programs may
import it.
"""
