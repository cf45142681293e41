"""Spark: Java, the session, packages and what Spark fails with.

`session` alone touches the JVM. Imports `shared.storage`; both programs import it.
"""
