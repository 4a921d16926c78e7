"""The records of one moment of a life: one for each of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.baselines import since
from tallystream.kafka.life import Life, Outgoing, Part
from tallystream.record import Snapshot, encode

if TYPE_CHECKING:
    from tallystream.clock import Instant
    from tallystream.record import Metric


def records(life: Life, metrics: list[Metric], every_ms: int, now: Instant, *, final: bool) -> list[Outgoing]:
    """Return them; nothing is noted of them yet. A part that had a metric before has a record, without any now."""
    split = life.split.split(metrics)
    ready = []
    for number in sorted({*split, *life.parts}) or [0]:
        values = split.get(number, [])
        snapshot = Snapshot(
            app=life.app,
            life=life.id,
            part=number,
            seq=life.parts.get(number, Part()).seq + 1,
            prev=life.prev_ms,
            ts=max(now.wall_ms, 0),
            every_ms=every_ms,
            final=final,
            metrics=since(values, life.base),
        )
        ready.append(Outgoing(snapshot, encode(snapshot), values, life.split.layout))
    return ready
