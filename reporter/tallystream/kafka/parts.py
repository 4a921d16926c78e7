"""The parts of a snapshot: a registry that is too large for one record is split over several."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from tallystream.record import Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.record import Identity, Metric

MAX_RECORD_BYTES = 900_000
"""The maximum size of a record's value. Kafka's default limit is slightly more than a million bytes."""

MAX_PARTS = 1024
"""The number of parts is not increased from here on. The largest group of a part that is too large is excluded."""

HEADER_BYTES = 4000
"""An upper bound of a record's size without its metrics, for any app name."""

_ROOM_TO_GROW = 3000
"""The bytes by which the sketch of a histogram may grow."""

_encoder = msgspec.json.Encoder()


def parts_for(metrics: list[Metric], max_bytes: int) -> int:
    """Return the number of parts for which these metrics, with fully grown sketches, fill about half of each record."""
    growth = _ROOM_TO_GROW * sum(isinstance(metric, Histogram) for metric in metrics)
    return 1 + (len(_encoder.encode(metrics)) + growth) // (max_bytes // 2)


def group_of(metric: Metric, groups: Mapping[Identity, Identity]) -> Identity:
    """Return the identity of the metric's group, whose metrics must be in one record, or its own if it has none."""
    identity = metric.identity
    return groups.get(identity, identity)


def largest_group(metrics: list[Metric], groups: Mapping[Identity, Identity]) -> tuple[Identity, int]:
    """Return the largest group of these metrics and its size in a record, in bytes."""
    sizes: dict[Identity, int] = {}
    for metric in metrics:
        group = group_of(metric, groups)
        sizes[group] = sizes.get(group, 0) + len(_encoder.encode(metric)) + 1
    return max(sizes.items(), key=lambda item: item[1])


class Parts:
    """The parts of one life. The CRC-32 of a group's identity determines the part that its metrics are in.

    `layout` is a new object whenever metrics were added or removed, or their order changed.

    Args:
        number: the number of parts.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.layout: object = None
        self._part_of: dict[Identity, int] = {}
        self._seen: list[int] = []

    def place(self, groups: Mapping[Identity, Identity]) -> bool:
        """Assign parts to the metrics of groups. Return False if a metric would have to move to another part."""
        if self.number == 1:
            return True
        parts = {group: self._part(group) for group in set(groups.values())}
        return all(
            self._part_of.setdefault(identity, parts[group]) == parts[group] for identity, group in groups.items()
        )

    def split(self, metrics: list[Metric]) -> dict[int, list[Metric]]:
        """Return the metrics by part."""
        # Most snapshots have the same metrics in the same order as the last one: comparing that needs no identities.
        layout = ([m.name for m in metrics], [m.tags for m in metrics], [m.__class__ for m in metrics])
        if layout != self.layout:
            self.layout = layout
            if self.number > 1:
                identities = (metric.identity for metric in metrics)
                self._seen = [self._part_of.setdefault(identity, self._part(identity)) for identity in identities]
        if self.number == 1:
            return {0: metrics}
        split: dict[int, list[Metric]] = defaultdict(list)
        for part, metric in zip(self._seen, metrics, strict=True):
            split[part].append(metric)
        return split

    def _part(self, group: Identity) -> int:
        return crc32(repr(group).encode()) % self.number
