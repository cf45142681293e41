"""Which streams a run reads and from where on: discovery, catalog, one plan per stream.

Imports only `shared`, `sources`, `state` and the settings; `send` and the command line import it.
"""
