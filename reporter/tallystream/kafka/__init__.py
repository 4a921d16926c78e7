"""The reporter to Kafka: from a snapshot to acknowledged records."""
