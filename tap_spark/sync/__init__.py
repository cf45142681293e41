"""One run of the tap: streams in order, slices read by Spark, STATE after what it covers.

Imports everything else of the tap; only the command line imports it.
"""
