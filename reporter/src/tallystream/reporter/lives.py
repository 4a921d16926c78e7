"""The lives of a registry at one destination: what goes into each record, and when a new life begins. No Kafka here.

Within a life values are absolute, so the next record replaces a lost, late or repeated one. Only where one life follows
another must it be known exactly what the table has: the new life publishes what came after that. A life ends when its
`final` is acknowledged, when the table refuses a record of it, when metrics outgrow their part or when the registry has
another name, and never while a record is under way.

Each acknowledgement says when the record was appended, and so whether the table takes it (`is_timely`): what was taken
counts, what was refused does not. A record whose delivery failed may have been appended or not. A later acknowledged
record of its life replaces its values, metric by metric. If the life ends before that, they are taken as delivered, so
that nothing is counted twice.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tallystream.reporter._counted import Counted
from tallystream.reporter._life import Life, Outgoing, Part
from tallystream.reporter._parts import MAX_RECORD_BYTES, Parts
from tallystream.reporter._records import Header, records, would_fit
from tallystream.reporter._since import by_identity
from tallystream.reporter.record import Position, is_timely
from tallystream.reporter.ulid import new_ulid

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from tallystream.reporter._since import Values
    from tallystream.reporter.clock import Instant
    from tallystream.reporter.record import Identity, Metric

_log = logging.getLogger("tallystream.reporter")


class Lives:
    """The state machine. Used by one thread at a time.

    Args:
        app: the application's name; where it is set to another, a new life begins.
        every_ms: the reporting interval that the records state.
        max_bytes: the most that a record's value may have. A registry beyond it is split over parts.
    """

    def __init__(self, app: str, every_ms: int, max_bytes: int = MAX_RECORD_BYTES) -> None:
        self.app, self.every_ms, self.max_bytes = app, every_ms, max_bytes
        self._counted = Counted()  # the values of the whole process that the table has, over all lives
        self._covered: Values = {}  # the positions that another app reported: those of this one begin there
        self._life: Life | None = None
        self._skew_ms = 0  # the broker's clock less ours, as of the last acknowledgement

    @property
    def under_way(self) -> list[Outgoing]:
        """The records that were handed over and whose fate is open: one a part at most."""
        parts = self._life.parts.values() if self._life else ()
        return [part.under_way for part in parts if part.under_way]

    @property
    def closed(self) -> bool:
        """Whether the last life ended in order, or none has begun."""
        return self._life is None or self._life.closed

    @property
    def refused(self) -> bool:
        """Whether the table refuses the present life's records, so that a new one follows."""
        return self._life is not None and self._life.refused

    def has(self, outgoing: Outgoing) -> bool:
        """Tell whether this record, or a newer one of its part and life, was acknowledged and not refused."""
        life, snapshot = self._life, outgoing.snapshot
        return (
            life is not None and life.id == snapshot.life and life.parts[snapshot.part].acknowledged_seq >= snapshot.seq
        )

    def prepare(
        self,
        metrics: list[Metric],
        now: Instant,
        *,
        final: bool = False,
        groups: Mapping[Identity, Hashable] | None = None,
    ) -> list[Outgoing]:
        """Return the records to hand over now, given the values of the whole process; none while others are under way.

        `groups` says which metrics must be in the same record.
        """
        if self.under_way:
            return []
        life = self._life_for(now)
        header = Header(self.app, self.every_ms, now, final)
        ready = records(life, metrics, groups or {}, header)
        too_large = any(len(outgoing.value) > self.max_bytes for outgoing in ready)
        if (too_large or life.split.torn) and life.established and would_fit(metrics, groups or {}, self.max_bytes):
            # Metrics have outgrown their part, or belong into one part now: they can't change it within a life.
            life.outgrown = True
            life = self._life_for(now)
            ready = records(life, metrics, groups or {}, header)
        for outgoing in ready:
            part = life.parts[outgoing.snapshot.part]
            part.seq, part.closed, part.under_way = outgoing.snapshot.seq, False, outgoing
        return ready

    def acknowledged(self, outgoing: Outgoing, append_ms: int, now: Instant) -> None:
        """Take that the broker has the record, appended at `append_ms` by its clock."""
        life, part = self._landed(outgoing)
        self._skew_ms = append_ms - now.wall_ms
        if not is_timely(outgoing.snapshot, append_ms):
            life.refused = True
            return
        life.prev_ms = append_ms
        part.acknowledged_seq = outgoing.snapshot.seq
        part.closed = outgoing.snapshot.final
        if life.unknown:
            for identity in by_identity(outgoing.values):
                life.unknown.pop(identity, None)
        self._counted.take(outgoing.snapshot.part, outgoing.values, outgoing.layout)

    def failed(self, outgoing: Outgoing, *, never_sent: bool = False) -> None:
        """Take that no acknowledgement will come; `never_sent` says that the record surely did not reach the broker."""
        life, _ = self._landed(outgoing)
        if not never_sent:
            life.unknown.update(by_identity(outgoing.values))

    def _landed(self, outgoing: Outgoing) -> tuple[Life, Part]:
        assert self._life is not None
        part = self._life.parts[outgoing.snapshot.part]
        assert part.under_way is outgoing
        part.under_way = None
        return self._life, part

    def _life_for(self, now: Instant) -> Life:
        life = self._life
        if life is not None and not (life.closed or life.refused or life.outgrown or life.app != self.app):
            return life
        if life is not None and life.unknown:
            _log.warning(
                "life %s ends; a failed delivery with %d metrics is taken as delivered", life.id, len(life.unknown)
            )
            self._counted.update(life.unknown)
        born_ms = max(now.wall_ms + self._skew_ms, 0)
        counted = self._counted.values()
        if life is not None and life.app != self.app:
            self._covered = {key: metric for key, metric in counted.items() if isinstance(metric, Position)}
        base = {key: metric for key, metric in counted.items() if not isinstance(metric, Position)} | self._covered
        self._life = Life(new_ulid(born_ms), self.app, base, Parts(self.max_bytes))
        return self._life
