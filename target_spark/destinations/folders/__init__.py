"""Table folders on local disks and object stores: every change is one step for readers.

Imports only `shared` and `core`; `files` and `lakes` import it, and `load` and `convert`.
"""
