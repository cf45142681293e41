"""One module per database: how it quotes, describes its tables and writes values.

`dialect` finds the one of a URL.
"""
