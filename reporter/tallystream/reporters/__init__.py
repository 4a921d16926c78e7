"""The base classes of all reporters, and the reporters that do not need Kafka."""
