"""Wait until the sums have caught up, collect every number of the final table, and compare them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.sinks.stores import open_reader
from tallystream_aggregator.verify.reader import bounds, read_all
from tallystream_aggregator.verify.replay import Replay
from tallystream_cli.demo import journal, sums
from tallystream_cli.demo import topic as kafka
from tallystream_cli.demo.app import APP
from tallystream_cli.demo.sums import FIELDS, PROCESSED, positions_covered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_cli.demo.scenario import Scenario
    from tallystream_cli.demo.sums import Key, Values, Watch

AGGREGATOR, SHIPPER = "tallystream-aggregator", "tallystream-shipper"


def catch_up(play: Scenario, bootstrap_servers: str, topics: Topics, watch: Watch) -> None:
    """Wait until the aggregator has summed the whole of `metrics`, and the shipper has shipped the sums.

    Raises:
        StuckError: one of them did not get there.
    """
    _wait(play, bootstrap_servers, AGGREGATOR, topics.metrics)
    end = _wait(play, bootstrap_servers, SHIPPER, topics.agg)
    play.until(lambda: watch.position >= end, f"{topics.agg} is read to offset {end}")


def _wait(play: Scenario, bootstrap_servers: str, group: str, topic: str) -> int:
    consumer = kafka.reader(bootstrap_servers, group)
    try:
        end = kafka.ends(consumer, topic)[0]
        play.until(lambda: kafka.committed(consumer, topic)[0] >= end, f"{group} is at offset {end} of {topic}")
    finally:
        consumer.close()
    return end


def gather(
    play: Scenario, bootstrap_servers: str, topics: Topics, watch: Watch, store: StoreSettings, *, sent: int
) -> Results:
    """Return all that was found, after `catch_up`.

    Raises:
        TallystreamError, KafkaException, SinkUnavailableError, JournalError: a source can't be read.
    """
    aggregate = watch.sums.values()
    reader = open_reader(store)
    try:
        in_store = sums.read(reader, aggregate)
    finally:
        reader.close()
    replay = Replay()
    servers = {"bootstrap.servers": bootstrap_servers}
    for raw in read_all(servers, bounds(servers, topics.metrics)):
        replay.apply(f"{topics.metrics}:0", raw.timestamp_ms, raw.key, raw.value)
    replayed = Counter[str]()
    lives = Counter[str]()
    for life, row in replay.rows((APP, "counter", PROCESSED, ())):
        lives[life.instance] += 1
        replayed[life.instance] += row.numbers["count"]
    by_instance = {one.instance: one.batches() for one in play.apps}
    batches = [batch for some in by_instance.values() for batch in some]
    consumer = kafka.reader(bootstrap_servers)
    try:
        dead = kafka.ends(consumer, topics.dead)[0]
    finally:
        consumer.close()
    return Results(
        sent=sent,
        aggregate_processed=watch.sums.count(),
        journal_processed=journal.processed(batches),
        journal_duplicates=journal.duplicates(batches),
        journal_covered=journal.covered(batches),
        journal_delays=sum(batch.line.delays for batch in batches),
        journal_delay_sum=sum(batch.line.delay_sum for batch in batches),
        journal_batches=len(batches),
        held=journal.held(batches),
        covered=positions_covered(aggregate),
        lives=lives["app-2"],
        dips=len(watch.sums.dips),
        dead=dead,
        acknowledged={instance: journal.acknowledged(some) for instance, some in by_instance.items()},
        replayed=replayed,
        aggregate=aggregate,
        store=in_store,
        replay=_sums(replay),
    )


def _sums(replay: Replay) -> dict[Key, Values]:
    found: dict[Key, Values] = {}
    for app, kind, name, tags in replay.identities():
        if kind in FIELDS:
            sums = replay.sum((app, kind, name, tags))
            found[app, name, kind, tags] = {field: sums[field] for field in FIELDS[kind] if field in sums}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What was found, each from its own source; all are whole numbers of records unless they say otherwise.

    `aggregate`, `store` and `replay` are the fields of every sum, by metric. `acknowledged` and `replayed` are by
    instance: what the journals say was acknowledged, and what the replay has. `lives` are app-2's.
    """

    sent: int
    aggregate_processed: int
    journal_processed: int
    journal_duplicates: int
    journal_covered: int
    journal_delays: int
    journal_delay_sum: int
    journal_batches: int
    held: int
    covered: int
    lives: int
    dips: int
    dead: int
    acknowledged: Mapping[str, int]
    replayed: Mapping[str, int]
    aggregate: Mapping[Key, Values] = field(default_factory=dict)
    store: Mapping[Key, Values] = field(default_factory=dict)
    replay: Mapping[Key, Values] = field(default_factory=dict)

    @property
    def duplicates(self) -> int:
        """Processed twice, according to the aggregate."""
        return self.aggregate_processed - self.sent


class Row(NamedTuple):
    """One line of the table; `agrees` is None where there is nothing to agree with."""

    what: str
    value: str
    against: str = ""
    other: str = ""
    agrees: bool | None = None


def rows(found: Results) -> list[Row]:
    """Return the table."""
    acknowledged, replayed = sum(found.acknowledged.values()), sum(found.replayed.values())
    return [
        Row("events sent", _n(found.sent)),
        _equal("processed, by the aggregate", found.aggregate_processed, "by the journals", found.journal_processed),
        _equal(
            "processed twice, by the aggregate", found.duplicates, "by the journals' offsets", found.journal_duplicates
        ),
        Row(
            "in the batch that app-2 held when it was killed",
            _n(found.held),
            "at most those processed twice, above zero",
            _n(found.duplicates),
            0 < found.held <= found.duplicates,
        ),
        _equal("different events, by the positions", found.covered, "by the journals' offsets", found.journal_covered),
        _equal("different events, by the journals", found.journal_covered, "events sent", found.sent),
        _equal("flights with a delay, by the aggregate", _of(found, "flights.delay", "count"), *_j(found, "delays")),
        _equal("minutes of delay, by the aggregate", _of(found, "flights.delay", "sum"), *_j(found, "delay_sum")),
        _equal("batches, by the aggregate", _of(found, "flights.batch", "count"), *_j(found, "batches")),
        _same("the aggregate", found.aggregate, "a plain replay of metrics", found.replay),
        _same("the aggregate", found.aggregate, "the store", found.store),
        Row(
            "acknowledged increments, by the journals",
            _n(acknowledged),
            "in the aggregate",
            _n(found.aggregate_processed),
            _all_in(found) and acknowledged <= found.aggregate_processed and replayed == found.aggregate_processed,
        ),
        _equal("lives of app-2", found.lives, "the killed one and its successor", 2),
        _equal("dips of flights.processed", found.dips, "none", 0),
        _equal("dead letters", found.dead, "none", 0),
    ]


def exact(table: Sequence[Row]) -> bool:
    """Tell whether everything agrees that has something to agree with."""
    return all(row.agrees is not False for row in table)


def _all_in(found: Results) -> bool:
    return all(count <= found.replayed.get(instance, 0) for instance, count in found.acknowledged.items())


def _equal(what: str, value: int, against: str, other: int) -> Row:
    return Row(what, _n(value), against, _n(other), value == other)


def _same(what: str, values: Mapping[Key, Values], against: str, others: Mapping[Key, Values]) -> Row:
    fields = sum(len(row) for row in values.values())
    wrong = differences(values, others)
    # No metric at all would agree with nothing at all.
    other = "the same" if not wrong else f"{len(wrong)} differ: {'; '.join(wrong[:3])}"
    return Row(f"{what}, {len(values)} metrics", f"{fields} numbers", against, other, bool(values) and not wrong)


def differences(values: Mapping[Key, Values], others: Mapping[Key, Values]) -> list[str]:
    """Return what differs, each as metric, field and both values."""
    found = []
    for key in sorted(values.keys() | others.keys()):
        one, other = values.get(key, {}), others.get(key, {})
        found += [
            f"{key[1]}{dict(key[3]) or ''}.{name}: {one.get(name)} and {other.get(name)}"
            for name in sorted(one.keys() | other.keys())
            if one.get(name) != other.get(name)
        ]
    return found


def _of(found: Results, name: str, field_: str) -> int:
    values = [row[field_] for key, row in found.aggregate.items() if key[1] == name and field_ in row]
    return int(sum(values))


def _j(found: Results, name: str) -> tuple[str, int]:
    return "by the journals", getattr(found, f"journal_{name}")


def _n(number: int) -> str:
    return f"{number:,}"
