"""Which streams a run reads and from where on: discovery, catalog, one plan per stream.

Imports `sources` and `state`; `sync` and the command line import it.
"""
