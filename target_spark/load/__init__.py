"""The load path: converts and commits batches, under the names of stream maps or not.

Imports all of the target but `receive`, which imports it, and `operate`.
"""
