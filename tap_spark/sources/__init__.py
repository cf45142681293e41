"""Sources of streams: files, tables of lakes and catalogs, databases, generated rows.

`source_registry` finds all formats. Imports `state` and the stream settings only.
"""
