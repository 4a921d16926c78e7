"""The query of the loop: a tick for each shard, whose task runs the shard's loop for an epoch and keeps its state.

A micro-batch is a checkpoint interval here, not a latency target. Spark places the shards, stores their state and runs
them again. What is read and published goes through `tallystream_aggregator.stream`.
"""
