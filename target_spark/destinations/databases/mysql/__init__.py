"""MySQL and MariaDB as destinations.

Imports what `databases` has in common; found by `database_kinds`.
"""
