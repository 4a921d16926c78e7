"""What all reporters share, and the reporters that need no Kafka."""
