"""Access of a loop to Kafka, over confluent-kafka: `tallystream_aggregator.stream.broker` says what it is."""
