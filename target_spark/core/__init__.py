"""The pure core of the target: bytes to events, events to actions. No I/O, no clock, no Spark.

Imports only `shared`; every other package of the target may import it.
"""
