"""The PySpark jobs: thin shells around the table's rules (tallystream.aggregator.table) and the sinks."""
