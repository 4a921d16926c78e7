"""The results of the demonstration: every number from its own source, and the table that compares them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.sinks.stores import open_reader
from tallystream_aggregator.verify import job
from tallystream_cli.demo import journal
from tallystream_cli.demo.app import BATCH, DELAY
from tallystream_cli.demo.sums import positions_covered, read_points

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_aggregator.verify.check import Outcome
    from tallystream_cli.demo.sums import Key, SumsReader, Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The numbers to compare, each from its own source.

    `sums` and `store` are the fields of every sum by metric. `verified` is what `tallystream verify` found. The others
    are numbers of records, unless their name says something else.
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
    acknowledged: int
    covered: int
    decreases: int
    verified: Outcome
    sums: Mapping[Key, Values] = field(default_factory=dict)
    store: Mapping[Key, Values] = field(default_factory=dict)

    @property
    def duplicates(self) -> int:
        """How often a record was processed again, according to the sums."""
        return self.processed - self.sent


def collect(
    batches: Sequence[journal.Batch], bootstrap_servers: str, sums: SumsReader, store: StoreSettings, *, sent: int
) -> Results:
    """Return all results, when everything is summed and shipped; `batches` are those of the journals.

    Raises:
        TallystreamError, KafkaException, SinkUnavailableError: a source can't be read.
    """
    values = sums.values()
    with closing(open_reader(store)) as reader:
        in_store = read_points(reader, values)
    return Results(
        sent=sent,
        processed=sums.count(),
        journal_processed=journal.processed(batches),
        journal_duplicates=journal.duplicates(batches),
        journal_covered=journal.covered(batches),
        journal_delays=sum(batch.line.delays for batch in batches),
        journal_delay_sum=sum(batch.line.delay_sum for batch in batches),
        journal_batches=len(batches),
        held=journal.held(batches),
        acknowledged=journal.acknowledged(batches),
        covered=positions_covered(values),
        decreases=sums.decreases,
        verified=job.run(Cluster(bootstrap_servers)),
        sums=values,
        store=in_store,
    )


class Row(NamedTuple):
    """A row of the table; `agrees` is None if the value is not compared."""

    what: str
    value: str
    against: str = ""
    other: str = ""
    agrees: bool | None = None


def rows(results: Results) -> list[Row]:
    """Return the table."""
    verified = results.verified
    wrong = [f"{one.identity} {one.field}: {one.published} and {one.replayed}" for one in verified.differences]
    in_store = differences(results.sums, results.store)
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
        _same(f"the sums of {verified.sums} metrics", "a replay of metrics", wrong, verified.sums),
        _same(f"the sums of {len(results.sums)} metrics", "the store", in_store, len(results.sums)),
        Row(
            "acknowledged increments, by the journals",
            _text(results.acknowledged),
            "at most those in the sums",
            _text(results.processed),
            results.acknowledged <= results.processed,
        ),
        _equal("decreases of flights.processed", results.decreases, "none", 0),
        _equal("dead letters", verified.letters or 0, "none", 0),
    ]


def exact(table: Sequence[Row]) -> bool:
    """Return whether every row that compares two values agrees."""
    return all(row.agrees is not False for row in table)


def _equal(what: str, value: int, against: str, other: int) -> Row:
    return Row(what, _text(value), against, _text(other), value == other)


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


def _sum_of(results: Results, name: str, field_: str) -> int:
    return int(sum(values[field_] for key, values in results.sums.items() if key[1] == name and field_ in values))


def _text(number: int) -> str:
    return f"{number:,}"
