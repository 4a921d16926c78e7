"""Sums from which a value can be taken out again, for each metric type."""
