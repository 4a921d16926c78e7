"""Grafana's dashboards and alert rules: the JSON and YAML in `files`, with the settings of a system filled in.

`generate.files(settings)` returns them as files; `push` uploads dashboards and rules to a server.
"""
