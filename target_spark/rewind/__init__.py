"""History and rewind: the commits of tables with their STATE, and the return to one of them.

Imports the destinations and the settings; only the command line imports it.
"""
