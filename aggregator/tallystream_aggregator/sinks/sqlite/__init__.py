"""The local store: a file of SQLite."""
