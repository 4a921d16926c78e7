"""Grafana as code: dashboards, alert rules, data source and contact point, in the form of Grafana's HTTP API.

`resources.resources(settings)` returns them as plain JSON; `generate.files(settings)` returns them as files.
"""
