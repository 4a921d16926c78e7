"""What may be chosen of the table's rules."""

from __future__ import annotations

from dataclasses import dataclass

HOUR_MS = 3_600_000

BYTES_PER_METRIC = 256
"""Bytes of names and tags that an app may have for each metric that it may have."""
APPS = 4
"""The table has room for so many apps that are as large as one may be."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What may be chosen of the rules; times in milliseconds.

    `retire_after_ms`: how long after its last record a silent life moves from memory to disk; it decides nothing else.
    `forget_after_ms`: how long after that record its rows are dropped and only its counts are kept; at least 7 days.
    `short_form_every_ms`: the interval that is assumed of a program that publishes the short form, which does not say.
    `max_record_bytes` and `max_metrics` (of one record, and of one life) are the limits on an instance.
    `max_app_metrics` is how many metrics (name, type and tags) an app may have; what they take in bytes, and what all
    apps together may have, follows from it.
    """

    retire_after_ms: int = 24 * HOUR_MS
    forget_after_ms: int = 30 * 24 * HOUR_MS
    short_form_every_ms: int = 60_000
    max_record_bytes: int = 1_048_576
    max_metrics: int = 10_000
    max_app_metrics: int = 1_000_000

    @property
    def max_app_bytes(self) -> int:
        """How many bytes of names and tags the metrics of an app may have."""
        return BYTES_PER_METRIC * self.max_app_metrics

    @property
    def max_table_metrics(self) -> int:
        """How many metrics all apps together may have, in each shard."""
        return APPS * self.max_app_metrics

    @property
    def max_table_bytes(self) -> int:
        """How many bytes of names and tags the metrics of all apps may have, in each shard."""
        return APPS * self.max_app_bytes
