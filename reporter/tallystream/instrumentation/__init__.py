"""Metrics without a registry at hand: the default registry, and what counts and times by itself."""
