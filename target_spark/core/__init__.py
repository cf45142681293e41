"""The pure core of the target: bytes to events, events to actions. No I/O, no clock, no Spark.

Imports only `shared`; everything else of the target imports it.
"""
