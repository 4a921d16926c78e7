"""The source of catch-up: Spark's tasks read ranges of the backlog and compact them."""
