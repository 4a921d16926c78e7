"""The `tallystream` command, the local system and the demo."""
