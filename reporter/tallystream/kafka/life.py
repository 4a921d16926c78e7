"""The lives of a registry at one destination: their records, their ends and what is acknowledged.

Within a life, values are absolute, so the next record replaces a lost, late or repeated one. When a new life begins,
it must be known exactly what the table has: the new life publishes what was counted after that. A life ends when its
`final` record is acknowledged, when the table refuses one of its records or when the registry gets another name, but
never while a record is in flight. If metrics outgrow their part, or must now be in the same part, the life ends with
an empty `final` record, and the next one has other parts.

Each acknowledgement contains the record's append time, which determines whether the table accepts the record
(`is_timely`). The values of an accepted record count as delivered, those of a refused one do not. A record whose
delivery failed may or may not have been appended. A later acknowledged record of its life replaces its values, metric
by metric. If the life ends before that, they count as delivered, so that nothing is counted twice.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from tallystream.baselines import Values, by_identity, subtract
from tallystream.kafka.parts import HEADER_BYTES, MAX_PARTS, MAX_RECORD_BYTES, Parts, group_of, largest_group, parts_for
from tallystream.record import Metric, Position, Snapshot, encode, is_timely
from tallystream.ulid import new_ulid
from tallystream.validation import label

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.record import Identity


class Acknowledged:
    """The newest acknowledged values of each metric.

    The identities of a record's metrics are computed only when needed: usually the next record replaces it before that.
    """

    def __init__(self) -> None:
        self._values: Values = {}
        self._newest: dict[int, tuple[list[Metric], object]] = {}

    def add(self, part: int, metrics: list[Metric], layout: object) -> None:
        """Store the metrics of one part. Metrics that are missing from it keep their values.

        If two records of one part have the same object as `layout`, they have the same metrics in the same order. The
        identities are then not needed here, which saves time in the application's process.
        """
        last = self._newest.get(part)
        if last is not None and last[1] is not layout:
            self._values.update(by_identity(last[0]))
        self._newest[part] = metrics, layout

    def update(self, values: Values) -> None:
        """Store single values."""
        self.values().update(values)

    def values(self) -> Values:
        """Return all values by identity."""
        for metrics, _ in self._newest.values():
            self._values.update(by_identity(metrics))
        self._newest.clear()
        return self._values


class PendingRecord(msgspec.Struct, eq=False):
    """A record that is being sent: the published snapshot, and the values of the whole process at that time.

    If two records of one part have the same object as `layout`, they have the same metrics in the same order.
    """

    snapshot: Snapshot
    value: bytes
    values: list[Metric]
    layout: object


class Part(msgspec.Struct):
    """The state of one part: its last `seq`, the last one acknowledged, and the record in flight, if any."""

    seq: int = 0
    acknowledged_seq: int = 0
    closed: bool = False
    in_flight: PendingRecord | None = None


class Life(msgspec.Struct):
    """One life. All its records have the same `app`.

    `base` has the values that earlier lives delivered. `unknown` has the values of failed deliveries that may have
    arrived, until a later record with the same metric is acknowledged. `outgrown` tells whether the metrics need other
    parts.
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
        """Whether the final record of every part was acknowledged, or no record was made."""
        return all(part.closed for part in self.parts.values())


def records(life: Life, metrics: list[Metric], every_ms: int, now_ms: int, *, final: bool) -> list[PendingRecord]:
    """Return the records of a report, without changing `life`. A part that has lost all its metrics still has one."""
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
            ts=max(now_ms, 0),
            every_ms=every_ms,
            final=final,
            metrics=subtract(values, life.base),
        )
        ready.append(PendingRecord(snapshot, encode(snapshot), values, life.split.layout))
    return ready


_log = logging.getLogger("tallystream")


class LifeHistory:
    """The state machine of the lives. It must be used by one thread at a time.

    `incomplete` tells whether metrics are missing from the last records: they follow in a new life, or are too large.
    `errors` has a sentence for each group of metrics that became too large for any record. The caller clears it.

    Args:
        app: the application's name. If it is set to another one, a new life begins.
        every_ms: the reporting interval that the records contain, in milliseconds.
        max_bytes: the maximum size of a record's value. A larger registry is split over parts.
    """

    def __init__(self, app: str, every_ms: int = 1000, max_bytes: int = MAX_RECORD_BYTES) -> None:
        self.app, self.every_ms, self.max_bytes = app, every_ms, max_bytes
        self._acknowledged = Acknowledged()  # the values of the whole process, over all lives
        self._base_positions: Values = {}  # reported under an earlier app: those of this app start there
        self._life: Life | None = None
        self.incomplete = False
        self.errors: list[str] = []
        self._part_count = 0  # the number of parts of a new life; 0 before the first report
        self._rejected: set[Identity] = set()  # the groups that are too large
        self._skew_ms = 0  # the broker's clock minus this process's clock, as of the last acknowledgement

    @property
    def has_begun(self) -> bool:
        """Whether a record was made."""
        return self._life is not None

    @property
    def in_flight(self) -> list[PendingRecord]:
        """The records that were sent and neither acknowledged nor failed: at most one for each part."""
        parts = self._life.parts.values() if self._life else ()
        return [part.in_flight for part in parts if part.in_flight]

    @property
    def refused(self) -> bool:
        """Whether the table refuses the current life's records, so that a new life follows."""
        return self._life is not None and self._life.refused

    @property
    def new_life_due(self) -> bool:
        """Whether the current life has ended early, so that a new one with all values should follow immediately."""
        return self._life is not None and (self._life.refused or (self._life.outgrown and self._life.closed))

    def has(self, pending: PendingRecord) -> bool:
        """Return whether this record, or a newer one of its part and life, was acknowledged and not refused."""
        life, snapshot = self._life, pending.snapshot
        return (
            life is not None and life.id == snapshot.life and life.parts[snapshot.part].acknowledged_seq >= snapshot.seq
        )

    def prepare(
        self,
        metrics: list[Metric],
        now_ms: int,
        *,
        final: bool = False,
        groups: Mapping[Identity, Identity] | None = None,
    ) -> list[PendingRecord]:
        """Return the records to send now, given the values of the whole process, or none while others are in flight.

        `groups` defines which metrics must be in the same record.
        """
        if self.in_flight:
            return []
        groups = groups or {}
        while True:
            life = self._life_for(now_ms, metrics)
            if life.outgrown:
                self.incomplete = True
                ready = records(life, [], self.every_ms, now_ms, final=True)
                break
            if not life.split.place(groups):
                life.outgrown = True
                continue
            kept = [m for m in metrics if group_of(m, groups) not in self._rejected] if self._rejected else metrics
            self.incomplete = len(kept) < len(metrics)
            ready = records(life, kept, self.every_ms, now_ms, final=final)
            too_large = next((pending for pending in ready if len(pending.value) > self.max_bytes), None)
            if too_large is None:
                break
            self._make_room(life, too_large, metrics, groups)
        for pending in ready:
            part = life.parts.setdefault(pending.snapshot.part, Part())
            part.seq, part.closed, part.in_flight = pending.snapshot.seq, False, pending
        return ready

    def acknowledged(self, pending: PendingRecord, append_ms: int, now_ms: int) -> None:
        """Process an acknowledgement: the broker appended the record at `append_ms` by its clock."""
        life, part = self._remove_in_flight(pending)
        self._skew_ms = append_ms - now_ms
        if not is_timely(pending.snapshot, append_ms):
            life.refused = True
            return
        life.prev_ms = append_ms
        part.acknowledged_seq = pending.snapshot.seq
        part.closed = pending.snapshot.final
        if life.unknown:
            for identity in by_identity(pending.values):
                life.unknown.pop(identity, None)
        self._acknowledged.add(pending.snapshot.part, pending.values, pending.layout)

    def failed(self, pending: PendingRecord, *, never_sent: bool = False) -> None:
        """Process a failed delivery. `never_sent` means that the record certainly did not reach the broker."""
        life, _ = self._remove_in_flight(pending)
        if not never_sent:
            life.unknown.update(by_identity(pending.values))

    def _remove_in_flight(self, pending: PendingRecord) -> tuple[Life, Part]:
        assert self._life is not None
        part = self._life.parts[pending.snapshot.part]
        assert part.in_flight is pending
        part.in_flight = None
        return self._life, part

    def _life_for(self, now_ms: int, metrics: list[Metric]) -> Life:
        life = self._life
        if life is not None and not (life.closed or life.refused or life.app != self.app):
            return life
        if life is not None and life.unknown:
            _log.warning(
                "life %s ends; a failed delivery (metrics: %d) is treated as delivered", life.id, len(life.unknown)
            )
            self._acknowledged.update(life.unknown)
        created_ms = max(now_ms + self._skew_ms, 0)
        counted = self._acknowledged.values()
        if life is not None and life.app != self.app:
            self._base_positions = {key: metric for key, metric in counted.items() if isinstance(metric, Position)}
        counts: Values = {key: metric for key, metric in counted.items() if not isinstance(metric, Position)}
        self._part_count = self._part_count or parts_for(metrics, self.max_bytes)
        self._life = Life(new_ulid(created_ms), self.app, counts | self._base_positions, Parts(self._part_count))
        return self._life

    def _make_room(
        self, life: Life, too_large: PendingRecord, metrics: list[Metric], groups: Mapping[Identity, Identity]
    ) -> None:
        """End the life, so that one with more parts follows, or, if that can't help, exclude the largest group."""
        group, size = largest_group(too_large.snapshot.metrics, groups)
        if size + HEADER_BYTES <= self.max_bytes and self._part_count < MAX_PARTS:
            life.outgrown = True
            self._part_count = max(2 * self._part_count, parts_for(metrics, self.max_bytes))
            return
        name, kind, tags = group
        self._rejected.add(group)
        self.errors.append(
            f"the {kind} {label(name, dict(tags))} and the metrics that are colocated with it have {size:,} bytes, "
            f"a record has {self.max_bytes:,} at most; colocate fewer metrics"
        )
