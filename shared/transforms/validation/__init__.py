"""Validation of records against the JSON Schema of their stream.

A screen of vectorised checks clears the records that certainly fit; the jsonschema library
decides on the others, and its reason is what a user reads.
"""
