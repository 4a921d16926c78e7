"""Spark: the session, the aggregator's query around the table (tallystream_aggregator.table), and its checkpoint."""
