"""One module per built-in encoding: what the programs know of it without PyArrow.

Imports only `shared.encodings.encoding_format`; only `encoding_registry` loads it.
"""
