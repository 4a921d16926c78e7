"""Random histories of producers and of a group, killed in every window: what is shown at each moment is true.

What is compared is what a store has: the sums as they were when the shipper wrote them, and the offsets of the group
as they were when the lag collector read them. The judge are the journals at the moment of the sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from support import fuzz
from support.compared import repeated, wrong
from support.consumer_group import APP, PROCESSED, SENT, TOPIC, Group
from tallystream_aggregator.sinks.base import Series
from tallystream_dashboards.data import sums
from tallystream_dashboards.data.bounds import Bounds
from tallystream_dashboards.data.compare import Comparison
from tallystream_dashboards.data.sides import Compared, CounterKey, Side, positions_of, taken_of
from tallystream_dashboards.data.stored import GroupOffsets, place_of
from tallystream_dashboards.lag.storage import LAG

PARTITIONS, INSTANCES = 3, 2
NAMES = (SENT, PROCESSED, taken_of(PROCESSED))


@dataclass(frozen=True)
class Frozen:
    """The journals at one moment."""

    worked: Counter[tuple[int, int]]
    markers: set[tuple[int, int]]
    published: Counter[tuple[int, int]]

    def counted(self) -> Counter[tuple[int, int]]:
        """Return how often each record is in what was published."""
        return self.published


class Store:
    """What a store has of a group. Each step of the group takes a second, and `wait` more."""

    def __init__(self, group: Group) -> None:
        self.group, self.now_ms = group, 1_000_000
        self._series: dict[tuple[str, str, tuple[tuple[str, str], ...]], Series] = {}
        self.ship()

    def do(self, name: str, *arguments: int) -> None:
        """Let the group, or the store, do one step."""
        self.now_ms += 1000
        getattr(self if hasattr(self, name) else self.group, name)(*arguments)

    def wait(self, seconds: int) -> None:
        """Let time pass."""
        self.now_ms += seconds * 1000

    def ship(self) -> None:
        """Write the sums."""
        for one in self.group.sums():
            self._write(one.name, {"app": APP, "metric_type": one.type, **dict(one.tags)}, one.fields.values())
        self.journal = Frozen(self.group.worked.copy(), self.group.markers, self.group.counted())

    def collect(self) -> None:
        """Write the offsets of the group."""
        bounds = zip(self.group.starts, self.group.ends, self.group.committed, strict=True)
        for partition, numbers in enumerate(bounds):
            fields = zip(("start", "end", "committed"), numbers, strict=True)
            tags = {"group": "billing", "topic": TOPIC, "partition": str(partition)}
            self._write(LAG, tags, [Series(LAG, {}, name, [0], [number]) for name, number in fields])

    def sides(self) -> dict[CounterKey, Side]:
        """Return the counters that are in the store."""
        found = self._metrics()
        sides = {
            CounterKey(APP, name): Side(
                tuple(one for one in found if one.name == name),
                tuple(one for one in found if one.name == positions_of(name)),
            )
            for name in NAMES
        }
        return {key: side for key, side in sides.items() if side.counters}

    def compared(self, *, knows_sent: bool, knows_group: bool) -> Comparison | None:
        """Return what `tallystream compare` shows; None if nothing was counted."""
        sides = self.sides()
        sent, counted, taken = (sides.get(CounterKey(APP, name)) for name in NAMES)
        of_group = self._offsets() if knows_group else ()
        if counted is None or (knows_sent and sent is None):
            return None
        return Compared(sent if knows_sent else None, counted, taken, of_group).at(self.now_ms)

    def _offsets(self) -> tuple[GroupOffsets, ...]:
        fields = ("start", "end", "committed", "stale")
        found = [one for one in self._metrics() if one.name == LAG]
        return tuple(GroupOffsets("billing", place_of(one), *(one.line(field) for field in fields)) for one in found)

    def _metrics(self) -> list[sums.Metric]:
        return sums.metrics(self._series.values())

    def _write(self, name: str, tags: dict[str, str], fields: Iterable[Series]) -> None:
        for one in fields:
            key = (name, one.field, tuple(sorted(tags.items())))
            series = self._series.setdefault(key, Series(name, tags, one.field))
            if series.times_ms[-1:] != [self.now_ms]:
                series.times_ms.append(self.now_ms)
                series.values.append(one.values[0])
            series.values[-1] = one.values[0]


Step = tuple[str, *tuple[int, ...]]
of_instance, of_partition, few = st.integers(0, INSTANCES - 1), st.integers(0, PARTITIONS - 1), st.integers(1, 9)
work: list[st.SearchStrategy[Step]] = [
    *[st.tuples(st.just("step"), of_instance)] * 6,
    *[st.tuples(st.just("produce"), of_instance, of_partition, few)] * 2,
    *[st.tuples(st.just(name), of_instance) for name in ("end", "report", "report_sent")],
    *[st.tuples(st.just(name)) for name in ("ship", "collect")],
    st.tuples(st.just("wait"), few),
]
kills: list[st.SearchStrategy[Step]] = [
    st.tuples(st.just("kill"), of_instance),
    st.tuples(st.just("move"), of_partition, of_instance),
]
others: list[st.SearchStrategy[Step]] = [
    st.tuples(st.just("kill_producer"), of_instance),
    st.tuples(st.just("send"), of_partition, few),
    st.tuples(st.just("mark"), of_partition),
]


def histories(*steps: st.SearchStrategy[Step]) -> st.SearchStrategy[list[Step]]:
    return fuzz.lists(st.one_of(*steps), 80)


def run(history: Sequence[Step]) -> Iterator[Store]:
    """Yield the store after each time that the sums were written, which is also at the end."""
    store = Store(Group(PARTITIONS, INSTANCES))
    for partition in range(PARTITIONS):
        store.group.produce(0, partition, 5)
    store.group.report_sent(0)
    for name, *arguments in [*history, ("ship",)]:
        store.do(name, *arguments)
        if name == "ship":
            yield store


def finish(history: Sequence[Step]) -> tuple[Store, Comparison]:
    """Let everything be sent, reported and processed after a history. Return the store, and what is shown."""
    *_, store = run(history)
    for producer in range(INSTANCES):
        store.group.report_sent(producer)
    store.group.finish()
    store.ship()
    found = store.compared(knows_sent=True, knows_group=False)
    assert found is not None
    return store, found


@fuzz.examples(1000)
@given(history=histories(*work, *kills, *others))
def test_every_number_is_within_its_bounds_at_every_moment(history: list[Step]) -> None:
    """This holds with and without what was sent, and with and without the offsets of the group.

    Producers are killed, too; other ones send to the same topic; and offsets without a record are among the others.
    """
    for store in run(history):
        for knows_sent, knows_group in product((True, False), repeat=2):
            found = store.compared(knows_sent=knows_sent, knows_group=knows_group)
            if found is not None:
                assert not wrong(store.journal, found), (knows_sent, knows_group)


@fuzz.examples(300)
@given(history=histories(*work, *kills))
def test_numbers_are_exact_when_all_is_done(history: list[Step]) -> None:
    """Whatever was killed and moved: if all that was sent is reported and processed, only the work has a bound."""
    store, found = finish(history)
    assert (found.sent, found.lost, found.in_flight) == (exactly(sum(store.group.ends)), exactly(0), exactly(0))
    assert found.twice == exactly(repeated(store.journal.published))
    assert not wrong(store.journal, found)


@fuzz.examples(100)
@given(history=histories(*work))
def test_nothing_is_in_doubt_if_all_instances_end_by_themselves(history: list[Step]) -> None:
    """An instance that completes its work before it ends leaves no record that may have been processed twice."""
    assert finish(history)[1].processed_twice == exactly(0)


def exactly(number: int) -> Bounds:
    return Bounds(number, number)
