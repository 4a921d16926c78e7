"""What may be chosen of the table's rules."""

from __future__ import annotations

from dataclasses import dataclass

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What may be chosen of the rules; times in milliseconds.

    `retire_after_ms`: how long after its last record a silent life moves from memory to disk; it decides nothing else.
    `forget_after_ms`: how long after that record its rows are dropped and only its counts are kept; at least 7 days.
    `short_form_every_ms`: the interval that is assumed of a program that publishes the short form, which does not say.
    `max_record_bytes` and `max_metrics` (of one record, and of one life) are the limits on an instance.
    """

    retire_after_ms: int = 24 * HOUR_MS
    forget_after_ms: int = 30 * 24 * HOUR_MS
    short_form_every_ms: int = 60_000
    max_record_bytes: int = 1_048_576
    max_metrics: int = 10_000
