"""Batch settings: `batch_config`, the batch strategy and the failure policy.

Imports only `shared.settings`. Programs reach it through `shared.batch_config`.
"""
