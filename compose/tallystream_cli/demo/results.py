"""The results of the demonstration: every number from its own source, and the table that compares them."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.sinks.stores import open_reader
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.kafka.broker import KafkaBroker
from tallystream_aggregator.stream.reading import committed_records
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.replay import Replay
from tallystream_cli.demo import journal, offsets
from tallystream_cli.demo.app_metrics import APP, BATCH, DELAY, PROCESSED
from tallystream_cli.demo.sums import FIELDS, positions_covered, read_points

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_cli.demo.scenario import Scenario
    from tallystream_cli.demo.sums import Key, SumsReader, Values

AGGREGATOR, SHIPPER = "tallystream-aggregator", "tallystream-shipper"


def catch_up(scenario: Scenario, bootstrap_servers: str, topics: Topics, sums: SumsReader) -> None:
    """Wait until the aggregator has summed all that the applications published, and the shipper has shipped all sums.

    Raises:
        StuckError: one of them makes no progress.
    """
    _wait_for_group(scenario, bootstrap_servers, AGGREGATOR, topics.metrics)
    _wait_for_group(scenario, bootstrap_servers, SHIPPER, topics.agg)
    sums.refresh()


def _wait_for_group(scenario: Scenario, bootstrap_servers: str, group: str, topic: str) -> None:
    # The end with what is not committed yet: the markers of a step become visible at different times.
    end = offsets.end_offsets(bootstrap_servers, topic)[0]
    with clients.metadata_consumer({"bootstrap.servers": bootstrap_servers}, group) as consumer:
        scenario.wait_until(
            lambda: offsets.committed_offsets(consumer, topic)[0] >= end, f"{group} is at offset {end} of {topic}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The numbers to compare, each from its own source.

    `sums`, `store` and `replay` are the fields of every sum by metric. `acknowledged` (from the journals) and
    `replayed` count records by instance. `lives` are those of app-2. The others are numbers of records, unless their
    name says something else.
    """

    sent: int
    processed: int
    journal_processed: int
    journal_duplicates: int
    journal_covered: int
    journal_delays: int
    journal_delay_sum: int
    journal_batches: int
    held: int
    covered: int
    lives: int
    decreases: int
    dead_letters: int
    acknowledged: Mapping[str, int]
    replayed: Mapping[str, int]
    sums: Mapping[Key, Values] = field(default_factory=dict)
    store: Mapping[Key, Values] = field(default_factory=dict)
    replay: Mapping[Key, Values] = field(default_factory=dict)

    @property
    def duplicates(self) -> int:
        """How often a record was processed again, according to the sums."""
        return self.processed - self.sent


def collect(
    scenario: Scenario, bootstrap_servers: str, topics: Topics, sums: SumsReader, store: StoreSettings, *, sent: int
) -> Results:
    """Return all results; to be called after `catch_up`.

    Raises:
        TallystreamError, KafkaException, SinkUnavailableError, JournalError: a source can't be read.
    """
    values = sums.sums.values()
    with closing(open_reader(store)) as reader:
        in_store = read_points(reader, values)
    replay = Replay(Settings())
    broker = KafkaBroker({"bootstrap.servers": bootstrap_servers}, Selection(topics.metrics), clients.READING)
    for place in (Place(topic, number) for topic, numbers in broker.partitions().items() for number in numbers):
        for _, at_ms, key, value in committed_records(broker, place):
            replay.apply(str(place), at_ms, key, value)
    counts = Counter[str]()
    lives = Counter[str]()
    for life, row, _ in replay.held().get((APP, "counter", PROCESSED, ()), ()):
        lives[life.instance] += 1
        counts[life.instance] += row.values.count
    by_instance = {app.instance: app.batches() for app in scenario.apps}
    batches = [batch for of_instance in by_instance.values() for batch in of_instance]
    return Results(
        sent=sent,
        processed=sums.sums.count(),
        journal_processed=journal.processed(batches),
        journal_duplicates=journal.duplicates(batches),
        journal_covered=journal.covered(batches),
        journal_delays=sum(batch.line.delays for batch in batches),
        journal_delay_sum=sum(batch.line.delay_sum for batch in batches),
        journal_batches=len(batches),
        held=journal.held(batches),
        covered=positions_covered(values),
        lives=lives["app-2"],
        decreases=len(sums.sums.decreases),
        dead_letters=sum(1 for _ in committed_records(broker, Place(topics.dead, 0))),
        acknowledged={instance: journal.acknowledged(of_instance) for instance, of_instance in by_instance.items()},
        replayed=counts,
        sums=values,
        store=in_store,
        replay=_sums_of(replay),
    )


def _sums_of(replay: Replay) -> dict[Key, Values]:
    values: dict[Key, Values] = {}
    for (app, kind, name, tags), fields in replay.sums().items():
        if kind in FIELDS:
            values[app, name, kind, tags] = {field: fields[field] for field in FIELDS[kind] if field in fields}
    return values


class Row(NamedTuple):
    """A row of the table; `agrees` is None if the value is not compared."""

    what: str
    value: str
    against: str = ""
    other: str = ""
    agrees: bool | None = None


def rows(results: Results) -> list[Row]:
    """Return the table."""
    acknowledged, replayed = sum(results.acknowledged.values()), sum(results.replayed.values())
    in_sums = all(count <= results.replayed.get(instance, 0) for instance, count in results.acknowledged.items())
    return [
        Row("events sent", _text(results.sent)),
        _equal("processed, by the sums", results.processed, "by the journals", results.journal_processed),
        _equal(
            "processed twice, by the sums", results.duplicates, "by the journals' offsets", results.journal_duplicates
        ),
        Row(
            "in the batch that app-2 held when it was killed",
            _text(results.held),
            "at most those processed twice, above zero",
            _text(results.duplicates),
            0 < results.held <= results.duplicates,
        ),
        _equal(
            "different events, by the positions", results.covered, "by the journals' offsets", results.journal_covered
        ),
        _equal("different events, by the journals", results.journal_covered, "events sent", results.sent),
        _equal(
            "flights with a delay, by the sums",
            _sum_of(results, DELAY, "count"),
            "by the journals",
            results.journal_delays,
        ),
        _equal(
            "minutes of delay, by the sums",
            _sum_of(results, DELAY, "sum"),
            "by the journals",
            results.journal_delay_sum,
        ),
        _equal("batches, by the sums", _sum_of(results, BATCH, "count"), "by the journals", results.journal_batches),
        _same(results.sums, "a replay of metrics", results.replay),
        _same(results.sums, "the store", results.store),
        Row(
            "acknowledged increments, by the journals",
            _text(acknowledged),
            "at most those in the sums",
            _text(results.processed),
            in_sums and acknowledged <= results.processed and replayed == results.processed,
        ),
        _equal("lives of app-2", results.lives, "the killed one and its successor", 2),
        _equal("decreases of flights.processed", results.decreases, "none", 0),
        _equal("dead letters", results.dead_letters, "none", 0),
    ]


def exact(table: Sequence[Row]) -> bool:
    """Return whether every row that compares two values agrees."""
    return all(row.agrees is not False for row in table)


def _equal(what: str, value: int, against: str, other: int) -> Row:
    return Row(what, _text(value), against, _text(other), value == other)


def _same(sums: Mapping[Key, Values], against: str, others: Mapping[Key, Values]) -> Row:
    fields = sum(len(values) for values in sums.values())
    found = differences(sums, others)
    other = "the same" if not found else f"{len(found)} differ: {'; '.join(found[:3])}"
    # Without any sum, the comparison would prove nothing.
    return Row(f"the sums of {len(sums)} metrics", f"{fields} numbers", against, other, bool(sums) and not found)


def differences(values: Mapping[Key, Values], others: Mapping[Key, Values]) -> list[str]:
    """Return each field that differs, with its metric and both values."""
    found = []
    for key in sorted(values.keys() | others.keys()):
        one, other = values.get(key, {}), others.get(key, {})
        found += [
            f"{key[1]}{dict(key[3]) or ''}.{name}: {one.get(name)} and {other.get(name)}"
            for name in sorted(one.keys() | other.keys())
            if one.get(name) != other.get(name)
        ]
    return found


def _sum_of(results: Results, name: str, field_: str) -> int:
    return int(sum(values[field_] for key, values in results.sums.items() if key[1] == name and field_ in values))


def _text(number: int) -> str:
    return f"{number:,}"
