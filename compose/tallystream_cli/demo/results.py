"""The results of the demonstration: the table that compares the numbers of its sources. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tallystream_cli.demo import journal
from tallystream_cli.demo.app import BATCH, DELAY, PROCESSED, WINDOWS
from tallystream_cli.demo.sums import counted
from tallystream_dashboards.data.bounds import Bounds
from tallystream_dashboards.data.compare import compare
from tallystream_dashboards.data.sides import taken_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tallystream_aggregator.verify.check import Outcome
    from tallystream_cli.demo.sums import Key, Values


class Row(NamedTuple):
    """A row of the table; `agrees` is None if the value is not compared."""

    what: str
    value: str
    against: str = ""
    other: str = ""
    agrees: bool | None = None


class Duplicates(NamedTuple):
    """How often records were processed and counted again, by the journals, and the bounds of the first by the sums.

    The lower bound is what the sums say was counted twice, and exact.
    """

    processed: int = 0
    counted: int = 0
    by_sums: Bounds = Bounds(0, 0)


def twice(lines: Sequence[journal.Line], sums: Mapping[Key, Values]) -> Duplicates:
    """Return it for everything that was counted by now. The sums are judged as by `tallystream compare`."""
    processed, again = journal.of_kind(lines, "processed"), journal.of_kind(lines, "counted")
    by_sums = compare(None, counted(sums, PROCESSED), taken=counted(sums, taken_of(PROCESSED))).processed_twice
    return Duplicates(journal.repeated(processed), journal.repeated(again), by_sums)


class Found(NamedTuple):
    """What each source has: the number of events sent, the lines of the journals, the sums, the store, `verify`.

    `kills` is what was processed twice after each kill, in the order of `WINDOWS`. `sums` and `store` are the fields of
    every sum by metric. `decreases` counts the sums of flights.processed that were lower than the one before.
    """

    sent: int
    lines: Sequence[journal.Line]
    kills: Sequence[Duplicates]
    sums: Mapping[Key, Values]
    decreases: int
    store: Mapping[Key, Values]
    verified: Outcome


def rows(found: Found) -> list[Row]:
    """Return the table."""
    verified, batches = found.verified, journal.of_kind(found.lines, "counted")
    by_sums, different = counted(found.sums, PROCESSED), journal.different(batches)
    kills, in_all = [Duplicates(), *found.kills], twice(found.lines, found.sums)
    delays = sum(batch.delays for batch in batches)
    minutes = sum(batch.delay_sum for batch in batches)
    summed = int(sum(values["sum"] for key, values in found.sums.items() if key[1] == DELAY))
    wrong = [f"{one.identity} {one.field}: {one.published} and {one.replayed}" for one in verified.differences]
    in_store = differences(found.sums, found.store)
    return [
        Row("events sent", f"{found.sent:,}"),
        *(_twice(f"kill {where}", *pair) for where, pair in zip(WINDOWS.values(), pairwise(kills), strict=True)),
        _twice("in all", Duplicates(), in_all),
        _fewer("counted twice", in_all.counted, "processed twice", in_all.processed),
        _equal("counted, by the sums", by_sums.count, "by the journals", journal.records(batches)),
        _equal("counted twice, by the sums", by_sums.count - found.sent, "by the journals' offsets", in_all.counted),
        _equal("different events, by the positions", by_sums.count - by_sums.surplus, "by the journals", different),
        _equal("different events, by the journals", different, "events sent", found.sent),
        _equal("flights with a delay, by the sums", counted(found.sums, DELAY).count, "by the journals", delays),
        _equal("minutes of delay, by the sums", summed, "by the journals", minutes),
        _equal("batches, by the sums", counted(found.sums, BATCH).count, "by the journals", len(batches)),
        _same(f"the sums of {verified.sums} metrics", "a replay of metrics", wrong, verified.sums),
        _same(f"the sums of {len(found.sums)} metrics", "the store", in_store, len(found.sums)),
        _equal("decreases of flights.processed", found.decreases, "none", 0),
        _equal("dead letters", verified.letters or 0, "none", 0),
    ]


def exact(table: Sequence[Row]) -> bool:
    """Return whether every row that compares two values agrees."""
    return all(row.agrees is not False for row in table)


def _equal(what: str, value: int, against: str, other: int) -> Row:
    return Row(what, f"{value:,}", against, f"{other:,}", value == other)


def _fewer(what: str, value: int, against: str, other: int) -> Row:
    # If not, a kill did not come in its window.
    return Row(what, f"{value:,}", f"fewer than {against}, above zero", f"{other:,}", 0 < value < other)


def _twice(what: str, before: Duplicates, after: Duplicates) -> Row:
    """Return what was processed twice since `before`."""
    processed, counted = after.processed - before.processed, after.counted - before.counted
    least = after.by_sums.at_least - before.by_sums.at_least
    most = (after.by_sums.most or 0) - (before.by_sums.most or 0)
    certainty, other = ("exact", f"{most:,}") if least == most else ("a bound", f"{least:,} to {most:,}")
    agrees = counted == least <= processed <= most
    return Row(f"processed twice, {what}", f"{processed:,}", f"by the sums: {certainty}", other, agrees)


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
