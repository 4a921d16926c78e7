"""The PySpark jobs: thin shells around the table's rules (tallystream_aggregator.table) and the sinks."""
