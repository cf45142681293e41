"""Table folders on local disks and object stores: every change is one step for readers.

Imports only `core` and `shared`; the other destinations and dead letters import it.
"""
