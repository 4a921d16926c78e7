"""`tallystream dashboards push`: dashboards and alert rules into a Grafana server."""
