"""One module per database: how it quotes, describes its tables and writes values.

`dialect` finds the one of a URL. Only `tap_spark.sources.jdbc` and connections import it.
"""
