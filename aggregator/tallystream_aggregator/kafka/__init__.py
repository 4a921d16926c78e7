"""What the commands read from and write to Kafka: topics, groups, the ledger, the lease. No Spark."""
