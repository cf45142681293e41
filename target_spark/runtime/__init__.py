"""The running target: standard input, staging, threads, signals, dead letters, standard output.

Imports everything else of the target; only the command line imports it.
"""
