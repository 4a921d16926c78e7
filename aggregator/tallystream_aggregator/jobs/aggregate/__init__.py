"""`tallystream aggregate`: its start, its writer, the commits of offsets and the repair of the topics."""
