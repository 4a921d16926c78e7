"""The records of one moment of a life: one for each of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tallystream.reporter._life import Life, Outgoing, Part
from tallystream.reporter._parts import Parts
from tallystream.reporter._since import since, with_counts_of
from tallystream.reporter.record import Snapshot, encode

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from tallystream.reporter.clock import Instant
    from tallystream.reporter.record import Identity, Metric

_HEADER_BYTES = 4000
"""More than a record has beside its metrics, whatever the name of the app."""

_encoder = msgspec.json.Encoder()


class Header(NamedTuple):
    """What all records of one moment have in common."""

    app: str
    every_ms: int
    now: Instant
    final: bool


def records(life: Life, metrics: list[Metric], groups: Mapping[Identity, Hashable], header: Header) -> list[Outgoing]:
    """Return them; nothing is noted of them yet, but parts that the life did not have before."""
    app, every_ms, now, final = header
    ready = []
    for number, found in enumerate(life.split.split(metrics, groups)):
        part = life.parts.setdefault(number, Part())
        # A record of unknown fate may have told the table of a metric that is missing now. With it in this one, what
        # the table has of it is known, as of all others, as soon as this one is acknowledged.
        values = with_counts_of(part.unknown.values, found) if part.unknown else found
        layout = life.split.layout if values is found else object()
        snapshot = Snapshot(
            app=app,
            life=life.id,
            part=number,
            seq=part.seq + 1,
            prev=life.prev_ms,
            ts=max(now.wall_ms, 0),
            every_ms=every_ms,
            final=final,
            metrics=since(values, life.base),
        )
        ready.append(Outgoing(snapshot, encode(snapshot), values, layout))
    return ready


def would_fit(metrics: list[Metric], groups: Mapping[Identity, Hashable], max_bytes: int) -> bool:
    """Tell whether a new life could split the metrics so that no record is too large."""
    split = Parts(max_bytes).split(metrics, groups)
    return all(len(_encoder.encode(values)) + _HEADER_BYTES <= max_bytes for values in split)
