"""`tallystream lag collect`: read the lag from the broker and write it to the store."""
