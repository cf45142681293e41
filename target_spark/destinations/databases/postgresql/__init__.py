"""PostgreSQL as a destination, by binary COPY.

Imports what `databases` has in common; found by `database_kinds`.
"""
