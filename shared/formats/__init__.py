"""File formats of tables and BATCH messages: what reads and writes each encoding.

Imports only `shared.encodings` and `shared.storage`. `maps` and both programs may import it.
"""
