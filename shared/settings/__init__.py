"""Settings: read from files and the environment, checked against one schema, documented.

Imports only `shared.encodings` and `shared.errors`.
"""
