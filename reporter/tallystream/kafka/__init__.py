"""The Kafka reporter: from a snapshot to acknowledged records."""
