"""The aggregator's query: its settings, its two modes, and the stateful processors of the table."""
