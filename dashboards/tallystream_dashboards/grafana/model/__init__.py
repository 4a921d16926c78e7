"""What a dashboard is made of: rows, panels, queries, variables."""
