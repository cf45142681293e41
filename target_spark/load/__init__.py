"""The load path: files of a batch in, durable rows of a table out, through stream maps or not.

Imports all of the target but `runtime`, which imports it, as do the hooks of `target_spark`.
"""
