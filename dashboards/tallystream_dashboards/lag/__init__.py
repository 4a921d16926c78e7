"""Consumer lag: how far each consumer group is behind, by topic and partition.

`model` is pure; `tallystream_dashboards.lag.collector.job` reads the lag from a broker and writes it to the store.
"""

from __future__ import annotations

from tallystream_dashboards.lag.model import (
    LAG,
    Behind,
    BeyondEnd,
    GroupLag,
    NothingCommitted,
    PartitionLag,
    Progress,
    Total,
    partition_lag,
)

__all__ = [
    "LAG",
    "Behind",
    "BeyondEnd",
    "GroupLag",
    "NothingCommitted",
    "PartitionLag",
    "Progress",
    "Total",
    "partition_lag",
]
