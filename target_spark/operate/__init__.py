"""Operating tables: comparison, repair, audits, maintenance, history and the return to a commit.

Imports everything else of the target; only the command line and declarations of destinations name
it.
"""
