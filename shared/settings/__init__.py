"""Settings: read from files and the environment, checked against one schema, documented.

Imports only `shared.encodings` and `shared.errors`, and `docs` the programs' settings. Every
package of `shared` but `encodings` and `singer` may import it, and both programs.
"""
