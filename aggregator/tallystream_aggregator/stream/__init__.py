"""The continuous loop of one shard, without Spark: read `metrics`, apply, publish each step in one transaction.

What is published at a vector of positions is a function of the records up to it. docs/architecture.md has the picture.
"""
