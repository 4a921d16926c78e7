"""Kafka access for all commands: topics, groups, the ledger, the lease. No Spark."""
