"""Queries in Flux, InfluxQL and PromQL."""
