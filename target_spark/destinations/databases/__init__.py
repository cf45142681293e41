"""Databases that can be loaded into: staged by executors, merged in one transaction.

Imports `tables`; found by `destination_registry`.
"""
