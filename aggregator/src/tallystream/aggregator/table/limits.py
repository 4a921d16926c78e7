"""The limits on one instance (rule 11), and when a record may come (rule 3): verdicts on a record by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.reporter.ulid import ulid_ms

if TYPE_CHECKING:
    from tallystream.reporter.record import Snapshot

RECORD_SIZE = "record size"
METRICS_PER_RECORD = "metrics per record"
METRICS_PER_LIFE = "metrics per life"


DAY_MS = 24 * 3_600_000
"""How long after its `prev`, and how far from its life's ULID, a record may be appended: part of the contract."""


def untimely(snapshot: Snapshot, timestamp_ms: int) -> str | None:
    """Return why a record appended at `timestamp_ms` comes too late or too early, None when it does not.

    The record alone decides, and its own append time: the reporter makes the same comparison when a record is
    acknowledged, so both know what counts.
    """
    ahead = ulid_ms(snapshot.life) - timestamp_ms
    if ahead > DAY_MS:
        return f"too early: the life's ULID is {ahead} ms ahead of the broker, {DAY_MS} ms at most are taken"
    since, what = (snapshot.prev, "prev") if snapshot.prev is not None else (ulid_ms(snapshot.life), "the life's ULID")
    late = timestamp_ms - since
    if late < DAY_MS:
        return None
    return f"too late: appended {late} ms after {what}, less than {DAY_MS} ms are taken"
