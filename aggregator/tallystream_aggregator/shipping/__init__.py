"""Shipping without Spark in sight: which sums are shipped, and the points they become."""
