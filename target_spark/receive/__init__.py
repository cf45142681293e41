"""Receiving: standard input, staging, threads, signals, dead letters, standard output.

Imports everything else of the target but `operate`; only the command line and `operate` import it.
"""
