"""Destinations of the rows of a stream, one module or package per kind.

`declaration` describes a destination, `registry` finds all of them, `contract` is their interface.
This module does not import anything, so that a declaration is read without Spark and Arrow.
"""
