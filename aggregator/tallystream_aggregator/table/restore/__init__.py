"""The table from the records of `metrics-table`."""
