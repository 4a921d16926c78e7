"""The aggregator's query: its settings, its two plans, and the table as a stateful processor."""
