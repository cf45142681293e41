"""BATCH messages of the tap: files written by executors and announced.

Imports `output` and `state`; only `sync` imports it.
"""
