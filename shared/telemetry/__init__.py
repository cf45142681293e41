"""What a run tells other systems while it works: OpenLineage events, spans and metrics.

Observers are told by `shared.run_summary`. Imports only `shared.errors`, `shared.settings` and
`shared.storage`; the packages that send are imported only if the settings or the environment ask
for them.
"""
