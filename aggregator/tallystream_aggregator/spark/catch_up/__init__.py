"""The source of the mode catch-up: ranges of the backlog, read and compacted by Spark's tasks."""
