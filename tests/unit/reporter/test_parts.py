"""A registry that is too large for one record: its parts, and when a new life begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from tallystream import MetricRegistry
from tallystream.kafka.life import LifeHistory
from tallystream.kafka.parts import Parts, parts_for
from tallystream.record import Counter, Histogram, Identity, Metric, Snapshot
from tallystream.testing import ManualClock

if TYPE_CHECKING:
    import random


LIMIT = 20_000


def counters(names: list[str], count: int = 1) -> list[Metric]:
    return [Counter(name=name, count=count) for name in names]


class Reports:
    """A registry that is reported in records of at most `LIMIT` bytes, and the records that arrived."""

    def __init__(self) -> None:
        self.clock, self.registry = ManualClock(), MetricRegistry("app")
        self.lives = LifeHistory("app", max_bytes=LIMIT)
        self.snapshots: list[Snapshot] = []

    def report(self, result: str = "acknowledged", *, final: bool = False) -> None:
        """Report once; the record arrives if the delivery is `acknowledged` or `failed`, not if it is `unsent`."""
        metrics, groups = self.registry.snapshot(), self.registry.groups()
        for pending in self.lives.prepare(metrics, self.clock.wall_ms(), final=final, groups=groups):
            assert len(pending.value) <= LIMIT
            if result != "unsent":
                self.snapshots.append(pending.snapshot)
            if result == "acknowledged":
                self.lives.acknowledged(pending, self.clock.wall_ms(), self.clock.wall_ms())
            else:
                self.lives.failed(pending, never_sent=result == "unsent")

    def report_all(self) -> list[Snapshot]:
        """Report until no metric is missing, and return the last report's snapshots."""
        begin = len(self.snapshots)
        self.report()
        if self.lives.incomplete:
            begin = len(self.snapshots)
            self.report()
        assert not self.lives.incomplete
        return self.snapshots[begin:]

    def rows(self) -> dict[tuple[str, str], int]:
        """Return the counts by life and metric; assert that no metric changes its part within a life."""
        rows: dict[tuple[str, str], int] = {}
        parts: dict[tuple[str, str], int] = {}
        for snapshot in self.snapshots:
            for metric in snapshot.metrics:
                if isinstance(metric, Counter):
                    row = snapshot.life, metric.name
                    assert parts.setdefault(row, snapshot.part) == snapshot.part
                    assert rows.get(row, 0) <= metric.count
                    rows[row] = metric.count
        return rows


ROUND = st.tuples(
    st.integers(0, 120), st.sampled_from(["unsent", "failed", "acknowledged"]), st.booleans(), st.booleans()
)


@examples(50)
@given(st.lists(ROUND, max_size=8), st.randoms(use_true_random=False))
def test_sums_are_exact_when_metrics_outgrow_their_parts(
    rounds: list[tuple[int, str, bool, bool]], chance: random.Random
) -> None:
    """Metrics are created, counted and colocated between reports that succeed or fail: each is counted once.

    Metrics that are colocated are in one part.
    """
    reports = Reports()
    made = [reports.registry.counter("first")]
    for number, result, together, final in rounds:
        made += [reports.registry.counter(f"{len(made) + new:060}") for new in range(number)]
        for counter in chance.sample(made, k=min(20, len(made))):
            counter.inc(chance.randint(1, 9))
        if together:
            reports.registry.colocate(*chance.sample(made, k=min(2, len(made))))
        reports.report(result, final=final)
    last = reports.report_all()
    parts = {metric.identity: snapshot.part for snapshot in last for metric in snapshot.metrics}
    groups = reports.registry.groups()
    assert all(parts[identity] == parts[group] for identity, group in groups.items())
    rows = reports.rows()
    for counter in made:
        assert sum(count for (_, name), count in rows.items() if name == counter.name) == counter.count


@given(st.lists(st.lists(st.integers(0, 200), unique=True), min_size=1, max_size=5))
def test_a_metric_stays_in_its_part(rounds: list[list[int]]) -> None:
    """If metrics are added and removed in any order, each stays in one part, and none is lost or repeated."""
    parts, seen = Parts(5), dict[Identity, int]()
    for numbers in rounds:
        metrics = counters([f"{number}" * 20 for number in numbers])
        split = parts.split(metrics)
        assert sorted(m.identity for part in split.values() for m in part) == sorted(
            metric.identity for metric in metrics
        )
        for number, part in split.items():
            for metric in part:
                assert seen.setdefault(metric.identity, number) == number


def test_metrics_are_spread_over_all_parts() -> None:
    """Each of five parts has between half and twice its share of a hundred metrics."""
    split = Parts(5).split(counters([f"metric.{number}" for number in range(100)]))
    assert sorted(split) == [0, 1, 2, 3, 4]
    assert all(10 <= len(part) <= 40 for part in split.values())


def test_records_are_at_most_half_full_at_first() -> None:
    """The size includes what the sketches of histograms may grow to."""
    names = [f"{number:080}" for number in range(100)]
    assert parts_for(counters(names), 1_000_000) == 1
    assert parts_for(counters(names), 10_000) == 3
    assert parts_for([Histogram(name=name, count=0) for name in names], 100_000) == 7


def test_each_part_of_a_large_registry_has_its_own_seq() -> None:
    """All parts have the same life, which ends when all final records are acknowledged."""
    clock, names = ManualClock(), [f"{number:060}" for number in range(300)]
    lives = LifeHistory("app", max_bytes=LIMIT)
    first = lives.prepare(counters(names), clock.wall_ms())
    assert len(first) == 3
    assert [(o.snapshot.part, o.snapshot.seq) for o in first] == [(part, 1) for part in range(len(first))]
    assert all(len(pending.value) <= LIMIT for pending in first)
    assert sorted(m.name for o in first for m in o.snapshot.metrics) == sorted(names)
    lives.failed(first[0], never_sent=True)
    for pending in first[1:]:
        lives.acknowledged(pending, clock.wall_ms(), clock.wall_ms())
    assert [lives.has(pending) for pending in first] == [False] + [True] * (len(first) - 1)
    final = lives.prepare(counters(names, 3), clock.wall_ms(), final=True)
    assert {o.snapshot.seq for o in final} == {2}
    for pending in final[1:]:
        lives.acknowledged(pending, clock.wall_ms(), clock.wall_ms())
    lives.failed(final[0])
    [again, *_] = lives.prepare(counters(names, 3), clock.wall_ms(), final=True)
    assert (again.snapshot.life, again.snapshot.seq) == (first[0].snapshot.life, 3)
