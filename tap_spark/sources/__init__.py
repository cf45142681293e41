"""Sources of streams: files, tables of lakes and catalogs, databases, generated rows.

`source_registry` finds all formats. Imports only `shared`, `state` and the settings of streams and
connections; `planning`, `sync` and the modules of settings import it.
"""
