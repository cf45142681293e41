"""Databases that can be loaded into: staged by executors, merged in one transaction.

Imports what destinations may import; found by `destination_declaration`.
"""
