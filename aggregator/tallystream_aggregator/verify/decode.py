"""What the replay reads of a record. The reader of records is the table's, and so are the classes of what it has read.

Tests compare this reader with another one (`table/test_record_reader.py`). What is made of a record is decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.table.records.decode import (
    CLOCK_KEY,
    DecodedSnapshot,
    Forget,
    read_clock,
    read_key,
    read_value,
)
from tallystream_aggregator.table.records.refusals import Refusal

if TYPE_CHECKING:
    from tallystream.record import Metric, ShortForm, Snapshot

__all__ = ["CLOCK_KEY", "Forget", "Identity", "Read", "RejectedError", "has_metric", "identify", "read_clock"]

Identity = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""(app, type, name, sorted tags). Each has one sum."""


class RejectedError(ValueError):
    """A record or a metric that is refused. The text gives the reason."""


class Read(NamedTuple):
    """A snapshot, and why metrics of it can't be read.

    `over_limit` tells whether there were more metrics than a record may have, `baseline` that its numbers are from
    before its stream of OTLP began.
    """

    snapshot: Snapshot
    refused: list[str]
    over_limit: bool = False
    baseline: bool = False


def read(value: bytes, max_metrics: int) -> Read | ShortForm | Forget:
    """Return the snapshot, the counter of the short form, or the forget record in `value`.

    Raises:
        RejectedError: the whole record is refused.
    """
    found = read_value(value, max_metrics)
    if isinstance(found, Refusal):
        raise RejectedError(found.reason)
    if not isinstance(found, DecodedSnapshot):
        return found
    refused = [one.reason for one in found.rejected] + ["more metrics can't be read"] * found.more_rejected
    return Read(found.snapshot, refused, found.over_limit > 0)


def instance_of(key: bytes | None) -> str:
    """Return the instance ID in a record's key.

    Raises:
        RejectedError: it is not an instance ID.
    """
    found = read_key(key)
    if isinstance(found, Refusal):
        raise RejectedError(found.reason)
    return found


def identify(app: str, metric: Metric) -> Identity:
    """Return the identity of a metric of an app."""
    return app, metric.type, metric.name, tuple(sorted(metric.tags.items()))


def has_metric(forget: Forget, identity: Identity) -> bool:
    """Return whether a forget record removes this metric. The metric may have more tags than the record."""
    app, kind, name, tags = identity
    is_named = name == forget.metric and forget.app in (None, app) and forget.type in (None, kind)
    return is_named and forget.tags.items() <= dict(tags).items()
