"""The limits on one instance (rule 11), and how late a record may come (rule 3): verdicts on a record by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.reporter.ulid import ulid_ms

if TYPE_CHECKING:
    from tallystream.reporter.record import Snapshot

RECORD_SIZE = "record size"
METRICS_PER_RECORD = "metrics per record"
METRICS_PER_LIFE = "metrics per life"


def too_late(snapshot: Snapshot, clock: int, retire_after_ms: int) -> str | None:
    """Return why a record comes too late, None when it does not.

    It does when its life may have been folded: `retire_after_ms` after its `prev`, or after its ULID where it has none.
    Whether the row is still there plays no part, so that a replay says the same.
    """
    since, what = (snapshot.prev, "prev") if snapshot.prev is not None else (ulid_ms(snapshot.life), "the life's ULID")
    late = clock - since
    if late < retire_after_ms:
        return None
    return f"too late: {late} ms after {what}, and lives retire after {retire_after_ms} ms"
