"""The difference between this machine's clock and that of a server, without writing anything.

`metrics` has the broker's append times. The newest of them is never later than the broker's clock, so it bounds the
difference on one side. A record that arrives between two requests bounds it on the other side too.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tallystream_cli.doctor import cluster as cluster_
from tallystream_cli.doctor.findings import not_checked, ok, warning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka.admin import AdminClient

    from tallystream_cli.doctor.findings import Finding

LIMIT_S = 5.0
"""The difference from which the alert clock-skew fires by default."""

WATCH_S, PAUSE_S = 3.0, 0.25
REMEDY = "correct the clock that is wrong: chronyc tracking, timedatectl"


class Sample(NamedTuple):
    """The newest timestamp of each partition, in epoch ms, and this machine's time before and after the request."""

    before_ms: float
    after_ms: float
    newest_ms: Mapping[int, int]


class Bounds(NamedTuple):
    """The server's clock is between `low_s` and `high_s` ahead of this machine's; None if that is unknown."""

    low_s: float | None
    high_s: float | None


def bounds(samples: Sequence[Sample]) -> Bounds:
    """Return what the samples tell about the difference. A record is appended before the response that has it."""
    low = [ts - one.after_ms for one in samples for ts in one.newest_ms.values()]
    high = [
        ts - earlier.before_ms
        for earlier, later in pairwise(samples)
        for partition, ts in later.newest_ms.items()
        if ts > earlier.newest_ms.get(partition, 0)
    ]
    return Bounds(max(low) / 1000 if low else None, min(high) / 1000 if high else None)


def finding(check: str, found: Bounds, server: str) -> Finding:
    """Return the finding for a difference. `server` is the other clock's machine."""
    low, high = found
    if low is not None and low > LIMIT_S:
        return warning(check, f"this machine's clock is {low:.1f} s or more behind that of {server}", REMEDY)
    if high is not None and high < -LIMIT_S:
        return warning(check, f"this machine's clock is {-high:.1f} s or more ahead of that of {server}", REMEDY)
    if low is None or high is None or low < -LIMIT_S or high > LIMIT_S:
        why = f"no record arrived within {WATCH_S:g} s, and only an arrival shows the time of {server}"
        return not_checked(check, why, "run it while an application reports")
    return ok(check, f"differs from that of {server} by {max(abs(low), abs(high)):.1f} s at most")


def watch(admin: AdminClient, topic: str, partitions: int) -> list[Sample]:
    """Ask for the newest timestamps until a record arrives, or for `WATCH_S`."""
    samples: list[Sample] = []
    until = time.monotonic() + WATCH_S
    while True:
        before_ms = time.time() * 1000
        newest = cluster_.newest(admin, topic, partitions)
        samples.append(Sample(before_ms, time.time() * 1000, newest))
        if bounds(samples[-2:]).high_s is not None or time.monotonic() > until:
            return samples
        time.sleep(PAUSE_S)
