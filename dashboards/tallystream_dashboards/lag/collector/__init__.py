"""`tallystream lag collect`: asks the broker for lag and writes it to the store."""
