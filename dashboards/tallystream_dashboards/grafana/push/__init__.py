"""`tallystream dashboards push`: write dashboards and alert rules to a Grafana server."""
