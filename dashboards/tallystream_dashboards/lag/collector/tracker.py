"""One round: request the offsets from the broker and the ledger, read timestamps, and evaluate the statuses."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tallystream_dashboards.lag.evaluate import FIELDS, evaluate
from tallystream_dashboards.lag.history import skews
from tallystream_dashboards.lag.live import GroupStates
from tallystream_dashboards.lag.model import LAG, Behind, PartitionId
from tallystream_dashboards.lag.reader import merge, read_groups
from tallystream_dashboards.lag.status import HELD_MS, OffsetSample
from tallystream_dashboards.lag.storage import ENDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tallystream_aggregator.sinks.base import PointReader, Series
    from tallystream_dashboards.lag.collector.settings import Patterns
    from tallystream_dashboards.lag.model import Probed, Round
    from tallystream_dashboards.lag.state import GroupState
    from tallystream_dashboards.lag.status import Rules

log = logging.getLogger(__name__)

SKEW_EVERY_MS = 30_000
"""The interval of requests for the newest timestamps, in ms. Clock skew lasts longer."""
REMEMBER_MS = 3_600_000
_FIELDS = ("committed", "end", "members")


class Broker(Protocol):
    """The requests to the broker, as in `OffsetFetcher`."""

    def ask(
        self, patterns: Patterns, ledger: Mapping[str, Mapping[PartitionId, int]] | None, known: Collection[str]
    ) -> Round:
        """Return the lag of every group, including those that are `known` from earlier rounds."""

    def newest(self, places: Iterable[PartitionId]) -> dict[PartitionId, tuple[int, int]]:
        """Return the offset and the timestamp of the record with the highest timestamp of each partition."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The results of one round: every group, worst first, the start and end of every partition, and the problems.

    `ts_ms` is when the ends were answered, `took_s` the duration of the round, `complete` whether all brokers listed
    their groups.
    """

    states: tuple[GroupState, ...]
    places: Mapping[PartitionId, tuple[int, int]]
    problems: tuple[str, ...]
    ts_ms: int
    took_s: float = 0.0
    complete: bool = True


class LagTracker:
    """The lag of every group that `patterns` match, with its status by `rules`.

    `clock` returns epoch seconds. `ledger` returns the ledger's offsets by group, None until it has been read. `probe`
    returns the records at offsets of partitions; None: no timestamps are read.
    """

    def __init__(
        self,
        broker: Broker,
        patterns: Patterns,
        rules: Rules,
        *,
        clock: Callable[[], float],
        ledger: Callable[[], Mapping[str, Mapping[PartitionId, int]] | None] = dict,
        probe: Callable[[set[tuple[PartitionId, int]]], Mapping[PartitionId, Mapping[int, Probed]]] | None = None,
    ) -> None:
        self._broker = broker
        self._patterns = patterns
        self._rules = rules
        self._clock = clock
        self._ledger = ledger
        self._probe = probe
        self._live = GroupStates(rules)
        self._skews: dict[PartitionId, int] = {}
        self._skews_due_ms = 0

    def sample(self) -> Watched:
        """Run one round and return its results.

        Raises:
            BrokerUnavailableError: no broker answered.
            StoppedError: a stop was requested meanwhile.
        """
        began = self._clock()
        found = self._broker.ask(self._patterns, self._ledger(), self._live.names)
        now_ms = found.ts_ms
        self._live.observe(found, now_ms)
        if now_ms >= self._skews_due_ms:
            self._skews = skews(self._broker.newest(found.places), self._live.ends, self._live.asked)
            self._skews_due_ms = now_ms + SKEW_EVERY_MS
        probed = self._probe(_oldest_unread(found)) if self._probe is not None else {}
        states = self._live.evaluate(found, now_ms, skew=self._skews, probed=probed)
        took_s = self._clock() - began
        return Watched(tuple(states), found.places, found.problems, now_ms, took_s, found.complete)

    def remember(self, reader: PointReader) -> None:
        """Load the history from before this process began from the store, so that ages and statuses continue.

        Raises:
            SinkUnavailableError: the store does not answer.
        """
        now_ms = round(self._clock() * 1000)
        for one in reader.read(ENDS, ("end",), start_ms=now_ms - REMEMBER_MS, end_ms=now_ms + 1):
            place = (one.tags["topic"], int(one.tags["partition"]))
            self._live.load_ends(place, one.times_ms, [int(value) for value in one.values])
        begin_ms = now_ms - round(self._rules.window_s * 1000) - HELD_MS
        series = reader.read(LAG, FIELDS, start_ms=begin_ms, end_ms=now_ms + 1)
        partitions = {one.group: [one] for one in evaluate(series, now_ms=now_ms, rules=self._rules)}
        for group in read_groups(reader, at_ms=now_ms):
            state = merge(group, partitions.get(group.group, []), own_rules=False)
            if state is not None and self._patterns.match(group.group):
                self._live.known(state)
        for (name, place), samples in _samples(series).items():
            self._live.load_samples(name, place, samples)


def _oldest_unread(found: Round) -> set[tuple[PartitionId, int]]:
    return {
        ((one.topic, one.partition), one.progress.committed)
        for group in found.groups
        for one in group.partitions
        if isinstance(one.progress, Behind) and one.progress.records
    }


def _samples(series: Iterable[Series]) -> dict[tuple[str, PartitionId], list[OffsetSample]]:
    fields: dict[tuple[str, PartitionId], dict[str, dict[int, int]]] = {}
    for one in series:
        place = (one.tags["topic"], int(one.tags["partition"]))
        if one.field not in _FIELDS:
            continue
        values = dict(zip(one.times_ms, (int(value) for value in one.values), strict=True))
        fields.setdefault((one.tags["group"], place), {})[one.field] = values
    return {
        key: [
            OffsetSample(ts, at, own["end"][ts], own.get("members", {}).get(ts))
            for ts, at in own.get("committed", {}).items()
            if ts in own.get("end", {})
        ]
        for key, own in fields.items()
    }
