"""Real servers on loopback, without Docker: a Kafka broker from its jars, InfluxDB from its source."""
