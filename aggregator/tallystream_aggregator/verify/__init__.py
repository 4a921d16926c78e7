"""`tallystream verify`: replays the topic `metrics` with an independent implementation, and compares every sum.

The replay (`decode`, `sketches`, `lives`, `silence`, `sums`, `replay`) implements docs/table.md, docs/record.md and
docs/metrics.md. It imports no code of Tallystream from outside this package, so it shares only the docs with the
aggregator.
"""
