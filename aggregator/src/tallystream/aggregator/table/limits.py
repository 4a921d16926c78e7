"""The limits on one instance (rule 11), and when a record may come (rule 3): verdicts on a record by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.reporter.ulid import ulid_ms

if TYPE_CHECKING:
    from tallystream.reporter.record import Snapshot

RECORD_SIZE = "record size"
METRICS_PER_RECORD = "metrics per record"
METRICS_PER_LIFE = "metrics per life"


def untimely(snapshot: Snapshot, clock: int, retire_after_ms: int) -> str | None:
    """Return why a record comes too late or too early, None when it does not.

    Too late is when its life may have been folded: `retire_after_ms` after its `prev`, or after its ULID where it has
    none. Too early is more than that before its ULID: the same record without `prev`, appended once more when the
    ULID's time has come, could not be told from a new one by then. Whether the row is there plays no part, so that a
    replay says the same.
    """
    ahead = ulid_ms(snapshot.life) - clock
    if ahead > retire_after_ms:
        return f"too early: the life's ULID is {ahead} ms ahead of the broker, {retire_after_ms} ms at most are taken"
    since, what = (snapshot.prev, "prev") if snapshot.prev is not None else (ulid_ms(snapshot.life), "the life's ULID")
    late = clock - since
    if late < retire_after_ms:
        return None
    return f"too late: {late} ms after {what}, and lives retire after {retire_after_ms} ms"
