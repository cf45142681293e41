"""The setting `connections`: databases, catalogs and folders whose tables discovery lists.

Imports `tap_spark.sources`; only discovery and planning import it.
"""
