"""Validation of records against the JSON Schema of their stream.

A screen of vectorised checks accepts the records that certainly fit. The jsonschema library
decides on the others; users see its reason.
"""
