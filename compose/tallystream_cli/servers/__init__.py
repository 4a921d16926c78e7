"""Processes on loopback, without Docker: what starts and stops them, and a Kafka broker."""
