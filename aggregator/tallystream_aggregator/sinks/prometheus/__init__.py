"""The sink of Prometheus: the newest sums at `/metrics`."""
