"""The load path: files of a batch in, durable rows of a table out, through stream maps or not.

Imports `core`, `tables`, `validation` and `destinations`; only `runtime` imports it.
"""
