"""`tallystream verify`: replays the topic `metrics` with an independent implementation, and compares every sum.

The replay (`otlp`, `sketches`, `lives`, `sums`, `shard`, `rules`, `replay`) implements docs/table.md, docs/otlp.md and
docs/metrics.md, and `advance`, `check` and `published` compare. Of the aggregator's code they import the reader of
records alone, in `decode`, so they share only that and the docs.
"""
