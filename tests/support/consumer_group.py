"""A consumer group that processes a topic and is killed at any moment, with a journal of what it really did.

Each instance goes through the documented loop in single steps: take, report, work record by record, count, report,
commit. Its registry is a real one, and the sums are those of what its lives published.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystream import ConsumerProgress, MetricRegistry, record
from tallystream_aggregator.sinks.base import Series
from tallystream_dashboards.data import sums

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.record import Metric

APP, TOPIC, PROCESSED = "billing", "orders", "billing.processed"
BATCH = 4
"""How many records of a partition an instance takes at once, at most."""


@dataclass(frozen=True)
class Message:
    """A consumed message, as a client returns it."""

    topic: str
    partition: int
    offset: int

    @property
    def place(self) -> tuple[int, int]:
        """Return the partition and the offset."""
        return self.partition, self.offset


@dataclass
class Life:
    """A process: its registry, the batch that it holds, what it has counted, and what the broker has of it."""

    takes: bool
    window: str = "idle"
    fetch: dict[int, int] = field(default_factory=dict)
    batch: list[Message] = field(default_factory=list)
    worked: int = 0
    counted: list[Message] = field(default_factory=list)
    published: list[Metric] = field(default_factory=list)
    published_count: int = 0

    def __post_init__(self) -> None:
        self.registry = MetricRegistry(APP)
        self.progress = ConsumerProgress(self.registry, PROCESSED)

    def publish(self) -> None:
        """Let the broker have what the registry has."""
        self.published, self.published_count = self.registry.snapshot(), len(self.counted)


class Group:
    """A topic, and the group that processes it.

    With `takes`, instances count and report what they take before the work. `lives` has all processes in the order in
    which they began, `running` the living one of each instance. `worked` is how often each record was really processed,
    and `killed_in` counts the kills by where they came.
    """

    def __init__(self, partitions: int, instances: int, *, takes: bool = True) -> None:
        self.takes = takes
        self.ends = [0] * partitions
        self.committed = [0] * partitions
        self.owner = [partition % instances for partition in range(partitions)]
        self.worked: Counter[tuple[int, int]] = Counter()
        self.killed_in: Counter[str] = Counter()
        self.lives: list[Life] = []
        self.running: list[Life] = []
        for instance in range(instances):
            self.running.append(self._begin(instance))

    def send(self, partition: int, number: int) -> None:
        """Append records to a partition."""
        self.ends[partition] += number

    def step(self, instance: int) -> None:
        """Let an instance do its next step."""
        life = self.running[instance]
        match life.window:
            case "idle":
                self._take(life)
            case "before taken is reported":
                life.publish()
                life.window = "during the work"
            case "during the work" if life.worked < len(life.batch):
                self.worked[life.batch[life.worked].place] += 1
                life.worked += 1
            case "during the work":
                life.progress.processed(life.batch)
                life.counted += life.batch
                life.window = "before counted is reported"
            case "before counted is reported":
                life.publish()
                life.window = "before the commit"
            case _:
                for message in life.batch:  # what was moved to another instance is not committed
                    if self.running[self.owner[message.partition]] is life and message.partition in life.fetch:
                        self.committed[message.partition] = message.offset + 1
                life.window, life.batch = "idle", []

    def report(self, instance: int) -> None:
        """Let an instance report in the background, at any moment."""
        self.running[instance].publish()

    def kill(self, instance: int) -> None:
        """Kill an instance and start it again. What it had not published is lost."""
        self.killed_in[self.running[instance].window] += 1
        self.running[instance] = self._begin(instance)

    def move(self, partition: int, instance: int) -> None:
        """Give a partition to another instance. The old one still finishes the batch that it holds."""
        self.running[self.owner[partition]].fetch.pop(partition, None)
        self.owner[partition] = instance
        self.running[instance].fetch[partition] = self.committed[partition]

    def commit_first(self, instance: int) -> None:
        """Commit what an instance has fetched, counted or not, as automatic commits do."""
        for partition, offset in self.running[instance].fetch.items():
            self.committed[partition] = max(offset, self.committed[partition])

    def finish(self) -> None:
        """Let all instances work until everything is committed."""
        while self.committed != self.ends or any(life.window != "idle" for life in self.running):
            for instance in range(len(self.running)):
                self.step(instance)

    def counted(self) -> Counter[tuple[int, int]]:
        """Return how often each record is in what was published."""
        return Counter(message.place for life in self.lives for message in life.counted[: life.published_count])

    def sums(self) -> list[sums.Metric]:
        """Return the sums of what all lives published."""
        return add_up(life.published for life in self.lives)

    def _begin(self, instance: int) -> Life:
        life = Life(self.takes)
        life.fetch = {at: self.committed[at] for at, owner in enumerate(self.owner) if owner == instance}
        self.lives.append(life)
        return life

    def _take(self, life: Life) -> None:
        for partition, offset in life.fetch.items():
            life.fetch[partition] = min(offset + BATCH, self.ends[partition])
            life.batch += [Message(TOPIC, partition, one) for one in range(offset, life.fetch[partition])]
        life.worked = 0
        if life.batch and life.takes:
            life.progress.taken(life.batch)
            life.window = "before taken is reported"
        elif life.batch:
            life.window = "during the work"


def add_up(published: Iterable[list[Metric]]) -> list[sums.Metric]:
    """Return the sums of snapshots: counts are added, and of positions the lowest start and highest end are kept."""
    totals: dict[tuple[str, str, tuple[tuple[str, str], ...]], dict[str, int]] = {}
    for metric in (one for snapshot in published for one in snapshot):
        total = totals.setdefault((metric.name, metric.type, tuple(sorted(metric.tags.items()))), {})
        if isinstance(metric, record.Counter):
            total["count"] = total.get("count", 0) + metric.count
        else:
            assert isinstance(metric, record.Position)
            total["start"] = min(metric.start, total.get("start", metric.start))
            total["position"] = max(metric.position, total.get("position", metric.position))
    return sums.metrics(
        Series(name, {**dict(tags), "app": APP, "metric_type": type_}, one, [0], [value])
        for (name, type_, tags), total in totals.items()
        for one, value in total.items()
    )
