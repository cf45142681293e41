"""Transforms of records between reading and writing: pure functions that compose."""
