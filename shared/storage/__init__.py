"""Files by path or URL, with limits, allowed roots and private folders.

Imports only `shared.errors`.
"""
