"""Which part of a snapshot a metric is in: a registry too large for one record is split, and stays split that way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.reporter._since import identity_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from tallystream.reporter import record

MAX_RECORD_BYTES = 900_000
"""The most that a record's value may have: Kafka's default limit is a little more than a million bytes."""

_ROOM_TO_GROW = {"histogram": 3000, "timer": 3200}
_ROOM_OF_OTHERS = 100

_encoder = msgspec.json.Encoder()


class Parts:
    """The parts of one life. A part is filled to half of `max_bytes`, counting in what its metrics may grow to.

    Metrics of one group are in the same part, whatever its size. Where they were in several parts before they became a
    group, they stay there, and `torn` is True. `layout` is a new object whenever metrics came or went, or are in
    another order.
    """

    def __init__(self, max_bytes: int) -> None:
        self._full = max_bytes // 2
        self._part_of: dict[record.Identity, int] = {}
        self._groups: dict[Hashable, int] = {}
        self._sizes: list[int] = [0]
        self.layout: object = None
        self.torn = False
        self._seen_parts: list[int] = []
        self._seen_groups: Mapping[record.Identity, Hashable] = {}

    def split(
        self, metrics: list[record.Metric], groups: Mapping[record.Identity, Hashable]
    ) -> list[list[record.Metric]]:
        """Return the metrics by part; a metric that was in a part before is in it again."""
        # Most registries have the metrics of the last time, in the same order: seen in a few steps.
        seen = ([m.name for m in metrics], [m.tags for m in metrics], [m.__class__ for m in metrics])
        if seen != self.layout or groups != self._seen_groups:
            self._find_groups(groups)
            self._seen_parts = [self._part(metric, groups) for metric in metrics]
            self.layout, self._seen_groups = seen, groups
        if len(self._sizes) == 1:
            return [metrics]
        split: list[list[record.Metric]] = [[] for _ in self._sizes]
        for part, metric in zip(self._seen_parts, metrics, strict=True):
            split[part].append(metric)
        return split

    def _find_groups(self, groups: Mapping[record.Identity, Hashable]) -> None:
        self.torn, self._groups = False, {}
        for identity, group in groups.items():
            part = self._part_of.get(identity)
            if part is not None and self._groups.setdefault(group, part) != part:
                self.torn = True

    def _part(self, metric: record.Metric, groups: Mapping[record.Identity, Hashable]) -> int:
        identity = identity_of(metric)
        part = self._part_of.get(identity)
        if part is None:
            group = groups.get(identity)
            part = self._part_of[identity] = self._place(metric, group)
            if group is not None:
                self._groups.setdefault(group, part)
        return part

    def _place(self, metric: record.Metric, group: Hashable | None) -> int:
        size = len(_encoder.encode(metric)) + _ROOM_TO_GROW.get(metric.type, _ROOM_OF_OTHERS)
        part = self._groups.get(group) if group is not None else None
        if part is None:
            # A part that is full stays full, so only the last one can have room.
            part = len(self._sizes) - 1
            if self._sizes[part] and self._sizes[part] + size > self._full:
                part += 1
                self._sizes.append(0)
        self._sizes[part] += size
        return part
