"""The lives of a registry at one destination: their records, when one ends, what is acknowledged. No Kafka.

Within a life values are absolute, so the next record replaces a lost, late or repeated one. Only where one life
follows another must it be known exactly what the table has: the new life publishes what came after that. A life ends
when its `final` is acknowledged, when the table refuses a record of it or when the registry has another name, and
never while a record is in flight. If metrics outgrow their part, or must be in the same part from now on, the life
ends with an empty `final`, and the next one has other parts.

Each acknowledgement has the record's append time, and so tells whether the table takes the record (`is_timely`): what
was taken counts, what was refused does not. A record whose delivery failed may have been appended or not. A later
acknowledged record of its life replaces its values, metric by metric. If the life ends before that, they are taken as
delivered, so that nothing is counted twice.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from tallystream.baselines import Values, by_identity, since
from tallystream.kafka.parts import HEADER_BYTES, MAX_PARTS, MAX_RECORD_BYTES, Parts, group_of, largest_group, parts_for
from tallystream.record import Metric, Position, Snapshot, encode, is_timely
from tallystream.ulid import new_ulid
from tallystream.validation import label

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.clock import Instant
    from tallystream.record import Identity


class Acknowledged:
    """The newest values of each metric. Most of what is acknowledged is replaced by the next acknowledgement unread."""

    def __init__(self) -> None:
        self._values: Values = {}
        self._newest: dict[int, tuple[list[Metric], object]] = {}

    def take(self, part: int, metrics: list[Metric], layout: object) -> None:
        """Take the metrics of one part of a record; those that are missing from it keep their values.

        Two of one part with the same `layout`, the same object, are of the same metrics in the same order: so much need
        not be looked at while it is the application's turn to run.
        """
        last = self._newest.get(part)
        if last is not None and last[1] is not layout:
            self._values.update(by_identity(last[0]))
        self._newest[part] = metrics, layout

    def update(self, values: Values) -> None:
        """Take single values."""
        self.values().update(values)

    def values(self) -> Values:
        """Return all of them by identity."""
        for metrics, _ in self._newest.values():
            self._values.update(by_identity(metrics))
        self._newest.clear()
        return self._values


class PendingRecord(msgspec.Struct, eq=False):
    """A record on its way: the snapshot, as published, and the values of the whole process that it stands for.

    Where two records of one part have the same object as `layout`, they are of the same metrics in the same order.
    """

    snapshot: Snapshot
    value: bytes
    values: list[Metric]
    layout: object


class Part(msgspec.Struct):
    """What is known of one part."""

    seq: int = 0
    acknowledged_seq: int = 0
    closed: bool = False
    in_flight: PendingRecord | None = None


class Life(msgspec.Struct):
    """One life. All its records are of one `app`.

    `base` is what earlier lives had counted. `unknown` has the values of failed deliveries that may have arrived, until
    a later record with the same metric is acknowledged. `outgrown` says that its metrics need other parts.
    """

    id: str
    app: str
    base: Values
    split: Parts
    prev_ms: int | None = None
    refused: bool = False
    outgrown: bool = False
    unknown: Values = {}
    parts: dict[int, Part] = {}

    @property
    def closed(self) -> bool:
        """Whether every part's final record was acknowledged, or no record was made."""
        return all(part.closed for part in self.parts.values())


def records(life: Life, metrics: list[Metric], every_ms: int, now: Instant, *, final: bool) -> list[PendingRecord]:
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
        ready.append(PendingRecord(snapshot, encode(snapshot), values, life.split.layout))
    return ready


_log = logging.getLogger("tallystream")


class LifeHistory:
    """The state machine. Used by one thread at a time.

    `incomplete` says whether metrics are missing from the last records: they follow in a new life, or are too large.
    `errors` has a sentence for each group of metrics that became too large for any record; the caller empties it.

    Args:
        app: the application's name; where it is set to another, a new life begins.
        every_ms: the reporting interval that the records state.
        max_bytes: the most that a record's value may have. A registry beyond it is split over parts.
    """

    def __init__(self, app: str, every_ms: int, max_bytes: int = MAX_RECORD_BYTES) -> None:
        self.app, self.every_ms, self.max_bytes = app, every_ms, max_bytes
        self._counted = Acknowledged()  # the values of the whole process that the table has, over all lives
        self._covered: Values = {}  # the positions that another app reported: those of this one begin there
        self._life: Life | None = None
        self.incomplete = False
        self.errors: list[str] = []
        self._parts = 0  # of a new life; none before the first report
        self._rejected: set[Identity] = set()  # the groups that are too large
        self._skew_ms = 0  # the broker's clock less ours, as of the last acknowledgement

    @property
    def in_flight(self) -> list[PendingRecord]:
        """The records that were handed over and whose fate is open: one a part at most."""
        parts = self._life.parts.values() if self._life else ()
        return [part.in_flight for part in parts if part.in_flight]

    @property
    def refused(self) -> bool:
        """Whether the table refuses the present life's records, so that a new one follows."""
        return self._life is not None and self._life.refused

    @property
    def new_life_due(self) -> bool:
        """Whether the present life has ended early, so that a new one with all values should follow at once."""
        return self._life is not None and (self._life.refused or (self._life.outgrown and self._life.closed))

    def has(self, outgoing: PendingRecord) -> bool:
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
        groups: Mapping[Identity, Identity] | None = None,
    ) -> list[PendingRecord]:
        """Return the records to send now, given the values of the whole process; none while others are in flight.

        `groups` says which metrics must be in the same record.
        """
        if self.in_flight:
            return []
        groups = groups or {}
        while True:
            life = self._life_for(now, metrics)
            if life.outgrown:
                self.incomplete = True
                ready = records(life, [], self.every_ms, now, final=True)
                break
            if not life.split.place(groups):
                life.outgrown = True
                continue
            kept = [m for m in metrics if group_of(m, groups) not in self._rejected] if self._rejected else metrics
            self.incomplete = len(kept) < len(metrics)
            ready = records(life, kept, self.every_ms, now, final=final)
            too_large = next((outgoing for outgoing in ready if len(outgoing.value) > self.max_bytes), None)
            if too_large is None:
                break
            self._make_room(life, too_large, metrics, groups)
        for outgoing in ready:
            part = life.parts.setdefault(outgoing.snapshot.part, Part())
            part.seq, part.closed, part.in_flight = outgoing.snapshot.seq, False, outgoing
        return ready

    def acknowledged(self, outgoing: PendingRecord, append_ms: int, now: Instant) -> None:
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

    def failed(self, outgoing: PendingRecord, *, never_sent: bool = False) -> None:
        """Take that no acknowledgement will come; `never_sent` says that the record surely did not reach the broker."""
        life, _ = self._landed(outgoing)
        if not never_sent:
            life.unknown.update(by_identity(outgoing.values))

    def _landed(self, outgoing: PendingRecord) -> tuple[Life, Part]:
        assert self._life is not None
        part = self._life.parts[outgoing.snapshot.part]
        assert part.in_flight is outgoing
        part.in_flight = None
        return self._life, part

    def _life_for(self, now: Instant, metrics: list[Metric]) -> Life:
        life = self._life
        if life is not None and not (life.closed or life.refused or life.app != self.app):
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
        self._parts = self._parts or parts_for(metrics, self.max_bytes)
        self._life = Life(new_ulid(born_ms), self.app, base, Parts(self._parts))
        return self._life

    def _make_room(
        self, life: Life, too_large: PendingRecord, metrics: list[Metric], groups: Mapping[Identity, Identity]
    ) -> None:
        """End the life, so that one with more parts follows; where these can't help, leave the largest group out."""
        group, size = largest_group(too_large.snapshot.metrics, groups)
        if size + HEADER_BYTES <= self.max_bytes and self._parts < MAX_PARTS:
            life.outgrown = True
            self._parts = max(2 * self._parts, parts_for(metrics, self.max_bytes))
            return
        name, kind, tags = group
        self._rejected.add(group)
        self.errors.append(
            f"the {kind} {label(name, dict(tags))} and the metrics that are kept together with it have {size:,} bytes, "
            f"a record has {self.max_bytes:,} at most; keep fewer metrics together"
        )
