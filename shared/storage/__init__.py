"""Files by path or URL, with limits, allowed roots and private folders.

Imports only `shared.errors`. `formats`, `spark`, `json`, `maps` and both programs may import it.
"""
