"""Producers, and a consumer group that processes their topic: killed at any moment, with a journal of what they did.

Each instance goes through the documented loop in single steps: take, report, work record by record, count, report,
commit. Its registry is a real one, and the sums are those of what its lives published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tallystream import ConsumerProgress, MetricRegistry, ProducerProgress, record
from tallystream.record import Metric
from tallystream_aggregator.sinks.base import Series
from tallystream_dashboards.data import sums

APP, TOPIC, SENT, PROCESSED = "shop", "orders", "orders.sent", "billing.processed"
BATCH = 4
"""How many records of a partition an instance takes at once, at most."""


@dataclass(frozen=True)
class Message:
    """A consumed message, as a client returns it."""

    topic: str
    partition: int
    offset: int
    before: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """Return the partition and the offset, after those `before` the topic was created again."""
        return self.partition, self.before + self.offset


@dataclass
class Life:
    """A process: its registry, the batch that it holds, what it has counted, and what the broker has of it."""

    takes: bool
    tags: dict[str, str]
    has_positions: bool
    window: str = "idle"
    fetch: dict[int, int] = field(default_factory=dict)
    batch: list[Message] = field(default_factory=list)
    worked: int = 0
    counted: list[Message] = field(default_factory=list)
    published: list[Metric] = field(default_factory=list)
    published_count: int = 0

    def __post_init__(self) -> None:
        self.registry = MetricRegistry(APP)
        self.progress = ConsumerProgress(self.registry, PROCESSED, tags=self.tags)

    def count(self) -> None:
        """Count the batch, with positions or without."""
        if self.has_positions:
            self.progress.processed(self.batch)
        else:
            self.progress.counter.inc(len(self.batch))
        self.counted += self.batch

    def publish(self) -> None:
        """Let the broker have what the registry has."""
        self.published, self.published_count = self.registry.snapshot(), len(self.counted)


class Sender:
    """A process that sends, its registry, and what the broker has of it."""

    def __init__(self) -> None:
        self.registry = MetricRegistry(APP)
        self.progress = ProducerProgress(self.registry, SENT)
        self.published: list[Metric] = []


class Group:
    """A topic, its producers, and the group that processes it.

    With `takes`, instances count and report what they take before the work; with `has_positions`, they count with
    positions. `version` is a tag of what they count, None: there is none. All three are those of lives that begin.
    `starts` are the first offsets that were not deleted, and `created` those from which on offsets begin at 0 again.
    `lives` has all consumers in the order in
    which they began, `running` the living one of each instance, and so have `senders` and `sending` the producers.
    `markers` are the offsets without a record, and `worked` is how often each record was really processed.
    """

    def __init__(self, partitions: int, instances: int, *, takes: bool = True) -> None:
        self.takes, self.has_positions = takes, True
        self.version: int | None = None
        self.ends = [0] * partitions
        self.committed, self.starts, self.created = [0] * partitions, [0] * partitions, [0] * partitions
        self.owner = [partition % instances for partition in range(partitions)]
        self.worked: Counter[tuple[int, int]] = Counter()
        self.markers: set[tuple[int, int]] = set()
        self.senders = [Sender() for _ in range(instances)]
        self.sending = list(self.senders)
        self.lives: list[Life] = []
        self.running: list[Life] = []
        for instance in range(instances):
            self.running.append(self._begin(instance))

    def send(self, partition: int, number: int) -> None:
        """Append records to a partition, which no producer counts."""
        self.ends[partition] += number

    def produce(self, producer: int, partition: int, number: int) -> None:
        """Let a producer send records and count them."""
        for _ in range(number):
            self.sending[producer].progress.delivered(None, self._message(partition, self.ends[partition]))
            self.ends[partition] += 1

    def mark(self, partition: int) -> None:
        """Append the end of a transaction, which takes an offset."""
        self.markers.add((partition, self.ends[partition]))
        self.ends[partition] += 1

    def report_sent(self, producer: int) -> None:
        self.sending[producer].published = self.sending[producer].registry.snapshot()

    def kill_producer(self, producer: int) -> None:
        """Kill a producer and start it again. What it had not reported is lost."""
        self.sending[producer] = Sender()
        self.senders.append(self.sending[producer])

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
                life.count()
                life.window = "before counted is reported"
            case "before counted is reported":
                life.publish()
                life.window = "before the commit"
            case _:
                self._commit(life)
                life.window, life.batch = "idle", []

    def report(self, instance: int) -> None:
        """Let an instance report in the background, at any moment."""
        self.running[instance].publish()

    def kill(self, instance: int) -> None:
        """Kill an instance and start it again. What it had not published is lost."""
        self.running[instance] = self._begin(instance)

    def end(self, instance: int) -> None:
        """Let an instance complete its work and end, and start it again."""
        while self.running[instance].window != "idle":
            self.step(instance)
        self.kill(instance)

    def move(self, partition: int, instance: int) -> None:
        """Give a partition to another instance. The old one still finishes the batch that it holds."""
        self.running[self.owner[partition]].fetch.pop(partition, None)
        self.owner[partition] = instance
        self.running[instance].fetch[partition] = self.committed[partition]

    def commit_first(self, instance: int) -> None:
        """Commit what an instance has fetched, counted or not, as automatic commits do."""
        self._commit(self.running[instance])

    def delete(self, partition: int, number: int) -> None:
        """Delete the first records of a partition, read or not."""
        self.starts[partition] = min(self.starts[partition] + number, self.ends[partition])

    def seek(self, partition: int, by: int) -> None:
        """Let the owner of a partition read on at another offset."""
        fetch = self.running[self.owner[partition]].fetch
        fetch[partition] = max(self.starts[partition], min(self.ends[partition], fetch[partition] + by))

    def create_again(self, partition: int) -> None:
        """Delete a partition with its records, and create it. Nobody works on it meanwhile."""
        self.created[partition] = self.starts[partition] = self.committed[partition] = self.ends[partition]
        for life in self.running:
            if partition in life.fetch:
                life.fetch[partition] = self.ends[partition]

    def upgrade(self, version: int) -> None:
        """Stop all instances at any moment, and start them with another tag."""
        self.version = version
        for instance in range(len(self.running)):
            self.kill(instance)

    def finish(self) -> None:
        """Let all instances work until everything is committed."""
        while self.committed != self.ends or any(life.window != "idle" for life in self.running):
            for instance in range(len(self.running)):
                self.step(instance)

    def counted(self) -> Counter[tuple[int, int]]:
        """Return how often each record is in what was published."""
        return Counter(message.place for life in self.lives for message in life.counted[: life.published_count])

    def sums(self) -> list[sums.Metric]:
        """Return the sums of what all processes published."""
        published = [life.published for life in self.lives]
        return add_up(published + [sender.published for sender in self.senders])

    def _commit(self, life: Life) -> None:
        for partition, offset in life.fetch.items():  # without what was moved to another instance
            self.committed[partition] = offset

    def _begin(self, instance: int) -> Life:
        tags = {} if self.version is None else {"version": str(self.version)}
        life = Life(self.takes, tags, self.has_positions)
        life.fetch = {at: self.committed[at] for at, owner in enumerate(self.owner) if owner == instance}
        self.lives.append(life)
        return life

    def _take(self, life: Life) -> None:
        for partition, offset in life.fetch.items():
            first = max(offset, self.starts[partition])
            life.fetch[partition] = min(first + BATCH, self.ends[partition])
            found = range(first, life.fetch[partition])
            life.batch += [self._message(partition, one) for one in found if (partition, one) not in self.markers]
        life.worked = 0
        if life.batch and life.takes:
            life.progress.taken(life.batch)
            life.window = "before taken is reported"
        elif life.batch:
            life.window = "during the work"
        else:
            self._commit(life)

    def _message(self, partition: int, offset: int) -> Message:
        before = self.created[partition]
        return Message(TOPIC, partition, offset - before, before)


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
