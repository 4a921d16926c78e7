"""The limits on one instance (rule 11), and how late a record may come (rule 3): verdicts on a record by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallystream.reporter.record import Snapshot

RECORD_SIZE = "record size"
METRICS_PER_RECORD = "metrics per record"
METRICS_PER_LIFE = "metrics per life"

_DIGITS = {digit: value for value, digit in enumerate("0123456789ABCDEFGHJKMNPQRSTVWXYZ")}


def ulid_ms(life: str) -> int:
    """Return the epoch milliseconds at which a ULID was made: its first ten characters, in Crockford's base 32."""
    total = 0
    for digit in life[:10]:
        total = total << 5 | _DIGITS[digit]
    return total


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
