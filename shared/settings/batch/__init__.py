"""Batch settings: `batch_config`, the batch strategy and the failure policy.

Imports only `shared.settings` and `shared.encodings`. Programs import its `types` and `rules`, and
read settings through `shared.batch_config`.
"""
