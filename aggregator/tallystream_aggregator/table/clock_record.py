"""The clock record: time passes in a partition of `metrics` though no instance publishes there.

It has the wall clock of the aggregator that appended it. Every shard reads it.
"""

from __future__ import annotations

import re

CLOCK_KEY = b"tallystream-clock"
"""The key of clock records. No instance has this ID."""

NO_CLOCK_RECORD = 'clock: the value is not {"v":1,"wall_ms":N}'

_VALUE = re.compile(rb'\{"v":1,"wall_ms":(0|[1-9][0-9]{0,14})\}')


def clock_value(wall_ms: int) -> bytes:
    """Return the value of a clock record. `wall_ms` is in epoch ms."""
    return b'{"v":1,"wall_ms":%d}' % wall_ms


def read_clock(value: bytes | None) -> int | None:
    """Return the wall clock in a clock record, in epoch ms, or None if the value is anything else."""
    found = None if value is None else _VALUE.fullmatch(value)
    return None if found is None else int(found[1])
