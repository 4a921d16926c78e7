"""Consumer lag, the page, and Grafana's dashboards."""
