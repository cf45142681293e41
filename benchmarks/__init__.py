"""Benchmarks, each with a reference in the same run; not part of the installed package."""
