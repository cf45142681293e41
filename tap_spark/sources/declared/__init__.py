"""One module per built-in format: what the program must know of it before Spark starts.

Imports only `source_declaration` and `reader_options` beside it, and `shared`.
"""
