"""The sums of a shard: their partial sums, the metrics that each one has, and how they are published."""
