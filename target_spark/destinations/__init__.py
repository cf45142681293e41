"""Destinations: where the rows of a stream end up, one package per kind.

`destination` is the contract, `destination_declaration` finds all of them. Imports only `shared`,
`core`, `tables` and `replays`; `load`, `convert` and the modules of settings import it.
"""
