"""BATCH messages of the tap: files written by executors and announced.

Imports only `shared`, `output` and `state`; `sync` imports it, and `get_batches` of `tap_spark`.
"""
