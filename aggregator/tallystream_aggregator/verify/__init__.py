"""`tallystream verify`: the topic `metrics` replayed by an independent implementation, and compared with every sum.

The replay (`reading`, `sketches`, `lives`, `summing`, `replay`) is written from docs/table.md, docs/record.md and
docs/metrics.md alone. It imports nothing of Tallystream's outside this package: not the record's decoder, not the
sketch, not the table. What it shares with the aggregator is the words of the docs.
"""
