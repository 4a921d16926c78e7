"""`tallystream verify`: replays the topic `metrics` with an independent implementation, and compares every sum.

The replay (`decode`, `otlp`, `sketches`, `lives`, `rules`, `replay`) implements docs/table.md, docs/record.md,
docs/otlp.md and docs/metrics.md, and `advance`, `check` and `published` compare. They import no code of Tallystream
from outside this package, so they share only the docs with the aggregator.
"""
