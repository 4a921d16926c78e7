"""The results of the demonstration: every number from its own source, and the table that compares them."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.sinks.stores import open_reader
from tallystream_aggregator.verify import job
from tallystream_cli.demo import journal
from tallystream_cli.demo.app import BATCH, DELAY, PROCESSED
from tallystream_cli.demo.sums import positions_covered, read_points

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_aggregator.verify.check import Outcome
    from tallystream_cli.demo.sums import Key, SumsReader, Values


class Row(NamedTuple):
    """A row of the table; `agrees` is None if the value is not compared."""

    what: str
    value: str
    against: str = ""
    other: str = ""
    agrees: bool | None = None


class Found(NamedTuple):
    """What each source has: the number of events sent, the batches of the journals, the sums, the store, `verify`.

    `sums` and `store` are the fields of every sum by metric. `decreases` counts the sums of flights.processed that were
    lower than the one before.
    """

    sent: int
    batches: Sequence[journal.Batch]
    sums: Mapping[Key, Values]
    decreases: int
    store: Mapping[Key, Values]
    verified: Outcome

    def total(self, name: str, field: str) -> int:
        """Return a field of a metric, added up over its tags."""
        return int(sum(values[field] for key, values in self.sums.items() if key[1] == name and field in values))


def collect(
    batches: Sequence[journal.Batch], bootstrap_servers: str, sums: SumsReader, store: StoreSettings, *, sent: int
) -> Found:
    """Return what each source has, when everything is summed and shipped.

    Raises:
        TallystreamError, KafkaException, SinkUnavailableError: a source can't be read.
    """
    values = sums.values()
    with closing(open_reader(store)) as reader:
        in_store = read_points(reader, values)
    return Found(sent, batches, values, sums.decreases, in_store, job.run(Cluster(bootstrap_servers)))


def rows(found: Found) -> list[Row]:
    """Return the table."""
    batches, verified, total = found.batches, found.verified, found.total
    processed = total(PROCESSED, "count")
    twice, held, acknowledged = processed - found.sent, journal.held(batches), journal.acknowledged(batches)
    different = journal.covered(batches)
    delays = sum(batch.line.delays for batch in batches)
    minutes = sum(batch.line.delay_sum for batch in batches)
    wrong = [f"{one.identity} {one.field}: {one.published} and {one.replayed}" for one in verified.differences]
    in_store = differences(found.sums, found.store)
    return [
        Row("events sent", _text(found.sent)),
        _equal("processed, by the sums", processed, "by the journals", journal.processed(batches)),
        _equal("processed twice, by the sums", twice, "by the journals' offsets", journal.duplicates(batches)),
        _at_most("in the batch that app-2 held when it was killed", held, "those processed twice, above zero", twice),
        _equal("different events, by the positions", positions_covered(found.sums), "by the journals", different),
        _equal("different events, by the journals", different, "events sent", found.sent),
        _equal("flights with a delay, by the sums", total(DELAY, "count"), "by the journals", delays),
        _equal("minutes of delay, by the sums", total(DELAY, "sum"), "by the journals", minutes),
        _equal("batches, by the sums", total(BATCH, "count"), "by the journals", len(batches)),
        _same(f"the sums of {verified.sums} metrics", "a replay of metrics", wrong, verified.sums),
        _same(f"the sums of {len(found.sums)} metrics", "the store", in_store, len(found.sums)),
        _at_most("acknowledged increments, by the journals", acknowledged, "those in the sums", processed),
        _equal("decreases of flights.processed", found.decreases, "none", 0),
        _equal("dead letters", verified.letters or 0, "none", 0),
    ]


def exact(table: Sequence[Row]) -> bool:
    """Return whether every row that compares two values agrees."""
    return all(row.agrees is not False for row in table)


def _equal(what: str, value: int, against: str, other: int) -> Row:
    return Row(what, _text(value), against, _text(other), value == other)


def _at_most(what: str, value: int, against: str, other: int) -> Row:
    return Row(what, _text(value), f"at most {against}", _text(other), 0 < value <= other)


def _same(what: str, against: str, differing: Sequence[str], compared: int) -> Row:
    other = "the same" if not differing else f"{len(differing)} differ: {'; '.join(differing[:3])}"
    # Without any sum, the comparison would prove nothing.
    return Row(what, "", against, other, compared > 0 and not differing)


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


def _text(number: int) -> str:
    return f"{number:,}"
