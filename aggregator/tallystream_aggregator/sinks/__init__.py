"""Sinks: one protocol, and an implementation for each store. One contract test suite covers all of them."""
