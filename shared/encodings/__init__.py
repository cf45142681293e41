"""What each encoding of batch files declares, and what other packages add by entry points.

Imports only `shared.errors`: every package of `shared` and both programs may import it.
"""
