"""What the page shows, read from the store and worked out."""
