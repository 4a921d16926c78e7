"""What may be chosen of the table's rules."""

from __future__ import annotations

from dataclasses import dataclass

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What may be chosen of the rules; times in milliseconds.

    `retire_after_ms`: how long after its last record a life is folded into the base, and how far back a tombstone
    reaches; keep it at twice the time after which reporters begin a new life (12 h). `short_form_every_ms`: the
    interval that is assumed of a program that publishes the short form, which does not say. `max_record_bytes` and
    `max_metrics` (of one record, and of one life) are the limits on an instance.
    """

    retire_after_ms: int = 24 * HOUR_MS
    short_form_every_ms: int = 60_000
    max_record_bytes: int = 1_048_576
    max_metrics: int = 10_000
