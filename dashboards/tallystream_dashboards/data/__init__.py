"""What the page and the commands in the terminal show, read from the store and computed."""
