"""The page's data, read from the store and computed."""
