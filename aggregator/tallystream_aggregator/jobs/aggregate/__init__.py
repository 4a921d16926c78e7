"""`tallystream aggregate`: one writer, its start, its offset commits and its repair."""
