"""The local store: a SQLite file."""
