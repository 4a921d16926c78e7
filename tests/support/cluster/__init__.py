"""Three brokers in one cluster, their clocks and their network."""
