"""Which part of a snapshot a metric is in: a registry that is too large for one record is split over several."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from tallystream.baselines import identity_of
from tallystream.record import Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.record import Identity, Metric

MAX_RECORD_BYTES = 900_000
"""The most that a record's value may have: Kafka's default limit is a little more than a million bytes."""

MAX_PARTS = 1024
"""A registry of so many parts has groups that are too large to share a record."""

HEADER_BYTES = 4000
"""More than a record has beside its metrics, whatever the name of the app."""

_ROOM_TO_GROW = 3000
"""Bytes that the sketch of a histogram may grow by."""

_encoder = msgspec.json.Encoder()


def parts_for(metrics: list[Metric], max_bytes: int) -> int:
    """Return the number of parts in which these metrics, their sketches grown, fill half of each record."""
    growth = _ROOM_TO_GROW * sum(isinstance(metric, Histogram) for metric in metrics)
    return 1 + (len(_encoder.encode(metrics)) + growth) // (max_bytes // 2)


def group_of(metric: Metric, groups: Mapping[Identity, Identity]) -> Identity:
    """Return what names the metrics that must be in the same record as this one; its own identity where it is alone."""
    identity = identity_of(metric)
    return groups.get(identity, identity)


def largest_group(metrics: list[Metric], groups: Mapping[Identity, Identity]) -> tuple[Identity, int]:
    """Return the largest group of these metrics, and the bytes that it takes in a record."""
    sizes: dict[Identity, int] = {}
    for metric in metrics:
        group = group_of(metric, groups)
        sizes[group] = sizes.get(group, 0) + len(_encoder.encode(metric)) + 1
    return max(sizes.items(), key=lambda item: item[1])


class Parts:
    """The parts of one life: the CRC-32 of a group's name says which of them its metrics are in.

    `layout` is a new object whenever metrics came or went, or are in another order.

    Args:
        number: how many there are.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.layout: object = None
        self._part_of: dict[Identity, int] = {}
        self._seen: list[int] = []

    def place(self, groups: Mapping[Identity, Identity]) -> bool:
        """Give the metrics of groups their parts; return False if one would have to leave its part."""
        if self.number == 1:
            return True
        parts = {group: self._part(group) for group in set(groups.values())}
        return all(
            self._part_of.setdefault(identity, parts[group]) == parts[group] for identity, group in groups.items()
        )

    def split(self, metrics: list[Metric]) -> dict[int, list[Metric]]:
        """Return the metrics by part."""
        # Most snapshots have the metrics of the last one in the same order: that is found out without their identities.
        layout = ([m.name for m in metrics], [m.tags for m in metrics], [m.__class__ for m in metrics])
        if layout != self.layout:
            self.layout = layout
            if self.number > 1:
                identities = map(identity_of, metrics)
                self._seen = [self._part_of.setdefault(identity, self._part(identity)) for identity in identities]
        if self.number == 1:
            return {0: metrics}
        split: dict[int, list[Metric]] = defaultdict(list)
        for part, metric in zip(self._seen, metrics, strict=True):
            split[part].append(metric)
        return split

    def _part(self, group: Identity) -> int:
        return crc32(repr(group).encode()) % self.number
