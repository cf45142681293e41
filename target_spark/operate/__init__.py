"""Operating tables: their history, the return to a commit, and runs that load nothing.

Imports everything else of the target; only the command line imports it.
"""
