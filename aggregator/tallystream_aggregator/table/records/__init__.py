"""What the table reads: a record as a message, with what is refused of it; and dead letters and events."""
