"""Destinations: where the rows of a stream end up, one module or package per kind.

`declaration` is what a destination says of itself, `registry` finds all of them, `contract` is what
each must do. Imports nothing itself, so that a declaration is read without Spark and Arrow.
"""
