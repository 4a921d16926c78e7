"""Grafana's dashboards and alert rules: the JSON and YAML in `files`, with the settings of a system filled in.

`resources.resources(settings)` returns them as plain JSON; `generate.files(settings)` returns them as files.
"""
