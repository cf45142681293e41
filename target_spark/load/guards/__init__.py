"""Guards of a load: each looks at all steps of the loader, in one order, and may end the run.

Each module is one guard, which imports no other one; `guard` is their contract. A guard can be left
out of the loader's list alone, and those that the settings do not ask for are.
"""
