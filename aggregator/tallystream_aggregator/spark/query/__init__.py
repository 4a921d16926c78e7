"""The aggregator's query: its settings, its two modes, and the table as a stateful processor."""
