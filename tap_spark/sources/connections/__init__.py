"""The setting `connections`: databases, catalogs and folders whose tables discovery lists.

Imports what `tap_spark.sources` has in common, `jdbc` and settings; only `planning` imports it.
"""
