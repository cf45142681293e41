"""Conversion: files of a batch in, hidden parts of a table out, with or without stream maps.

Imports what stands below in docs/architecture.md; `load`, `receive` and `operate` import it.
"""
