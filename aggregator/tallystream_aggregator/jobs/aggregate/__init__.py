"""`tallystream aggregate`: its start, and the driver, which runs the query of the loops and follows it."""
