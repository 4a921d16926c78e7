"""Prometheus: the latest sums at `/metrics`."""
