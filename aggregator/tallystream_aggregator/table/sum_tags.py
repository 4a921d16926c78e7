"""Which tags the sums have, and so which metrics have one sum (rule 12). The rows of the table always have all tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.errors import ConfigError
from tallystream.record import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Iterable, KeysView, Mapping, Sequence

    from tallystream_aggregator.sums import MetricId

Tags = tuple[tuple[str, str], ...]

REQUIRED = {"position": frozenset({"topic", "partition"}), "buckets": frozenset({BOUNDS})}
"""The tags without which a sum means nothing, by its type."""


class SumTags(msgspec.Struct, frozen=True, omit_defaults=True):
    """Metrics that differ only in tags that the sums do not have are added in one sum.

    The sums lack the tags `drop`. If `keep` is not None, they have only those tags. A tag without which a sum means
    nothing is always kept: `topic` and `partition` of a position, and `bounds` of buckets.
    """

    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = None

    @property
    def has_all(self) -> bool:
        """Whether the sums have all tags, so each metric has a sum of its own."""
        return not self.drop and self.keep is None

    def of(self, kind: str, tags: Tags) -> Tags:
        """Return the tags of the sum of a metric."""
        required = REQUIRED.get(kind, frozenset())
        return tuple(tag for tag in tags if self._has(tag[0]) or tag[0] in required)

    def __str__(self) -> str:
        if self.keep is not None:
            return f"--keep-tags {','.join(self.keep) or repr('')}"
        return " ".join(f"--drop-tag {tag}" for tag in self.drop) or "all tags"

    def _has(self, tag: str) -> bool:
        return tag not in self.drop if self.keep is None else tag in self.keep


class SumNumbers:
    """The numbers of the sums of `metrics`, which may grow. The number of a sum is that of its first metric.

    `are_shared` tells whether metrics can share a sum. If not, a sum has the number and the identity of its metric.
    """

    def __init__(self, metrics: Mapping[int, MetricId], tags: SumTags) -> None:
        self.are_shared = not tags.has_all
        self._all_metrics, self._tags = metrics, tags
        self._sums: dict[int, int] = {}
        self._numbers: dict[MetricId, int] = {}
        self._metrics: dict[int, set[int]] = {}
        self._identities: dict[int, MetricId] = {}

    def identity(self, number: int) -> MetricId:
        """Return the identity of a sum."""
        return self._identities[number] if self.are_shared else self._all_metrics[number]

    def of(self, number: int) -> int:
        """Return the number of a metric's sum."""
        if not self.are_shared:
            return number
        found = self._sums.get(number)
        return self._add(number) if found is None else found

    def drop(self, number: int) -> int:
        """Drop a metric. Return the number of its sum if no other metric has it, and else -1.

        A sum keeps the number of its first metric when that is dropped.
        """
        if not self.are_shared:
            return number
        of = self.of(number)
        metrics = self._metrics[of]
        metrics.remove(number)
        if number != of:
            del self._sums[number]
        if metrics:
            return -1
        del self._sums[of], self._metrics[of], self._numbers[self._identities.pop(of)]
        return of

    def of_all(self, numbers: set[int]) -> set[int]:
        """Return the numbers of the sums of these metrics."""
        return {self.of(number) for number in numbers} if self.are_shared else numbers

    def metrics_of(self, sums: set[int]) -> set[int]:
        """Return the numbers of all metrics of these sums."""
        if not self.are_shared:
            return sums
        return {number for each in sums for number in self._metrics[each]}

    def among(self, metrics: KeysView[int], sums: set[int]) -> Iterable[int]:
        """Return those of `metrics` that have one of these sums."""
        if not self.are_shared:
            return sums & metrics
        return [number for number in metrics if self.of(number) in sums]

    def _add(self, number: int) -> int:
        app, name, kind, tags = self._all_metrics[number]
        identity = app, name, kind, self._tags.of(kind, tags)
        of = self._numbers.setdefault(identity, number)
        self._identities[of] = identity
        self._metrics.setdefault(of, set()).add(number)
        self._sums[number] = of
        return of


def parse_sum_tags(drop: Sequence[str] | None, keep: str | None) -> SumTags | None:
    """Return the tags for the values of --drop-tag and --keep-tags, or None if neither is given.

    Raises:
        ConfigError: both are given, or a name is empty.
    """
    if not drop and keep is None:
        return None
    if drop and keep is not None:
        raise ConfigError("--keep-tags", keep, "give it without --drop-tag")
    for option, names in (("--drop-tag", list(drop or ())), ("--keep-tags", (keep or "-").split(","))):
        if not all(names):
            raise ConfigError(option, ",".join(names), "name tags that are not empty, as in region")
    if keep is None:
        return SumTags(drop=tuple(sorted(set(drop or ()))))
    return SumTags(keep=tuple(sorted(set(keep.split(",")) - {""})))
