"""The commands that run on the topics: each module reads from top to bottom."""
