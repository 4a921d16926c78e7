"""Alert rules: what they watch, and their form in Grafana and Prometheus."""
