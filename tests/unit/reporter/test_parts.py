"""A registry that is too large for one record: its parts, and when a new life begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from tallystream import MetricRegistry
from tallystream.kafka.life import LifeHistory
from tallystream.kafka.parts import Parts, parts_for
from tallystream.metrics.sketch import Sketch
from tallystream.record import Counter, Histogram, Identity, Metric, Snapshot
from tallystream.testing import ManualClock

if TYPE_CHECKING:
    import random

    from tallystream.metrics.base import Metric as RegistryMetric

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


def part_of(metric: RegistryMetric, snapshots: list[Snapshot]) -> int:
    [part] = [s.part for s in snapshots for each in s.metrics if each.identity == metric.identity]
    return part


ROUND = st.tuples(
    st.integers(0, 120), st.sampled_from(["unsent", "failed", "acknowledged"]), st.booleans(), st.booleans()
)


@examples(50)
@given(st.lists(ROUND, max_size=8), st.randoms(use_true_random=False))
def test_sums_are_exact_when_metrics_outgrow_their_parts(
    rounds: list[tuple[int, str, bool, bool]], chance: random.Random
) -> None:
    """Metrics are created, counted and colocated between reports that succeed or fail: each is counted once."""
    reports = Reports()
    made = [reports.registry.counter("first")]
    for number, result, together, final in rounds:
        made += [reports.registry.counter(f"{len(made) + new:060}") for new in range(number)]
        for counter in chance.sample(made, k=min(20, len(made))):
            counter.inc(chance.randint(1, 9))
        if together:
            reports.registry.colocate(*chance.sample(made, k=min(2, len(made))))
        reports.report(result, final=final)
    reports.report_all()
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


def test_colocating_metrics_of_two_parts_begins_a_new_life() -> None:
    """Within a life no metric changes its part, and nothing is counted twice."""
    reports = Reports()
    registry = reports.registry
    made = [registry.counter(f"metric.{number}" * 20) for number in range(100)]
    for counter in made:
        counter.inc()
    apart = reports.report_all()
    first = made[0]
    last, other = [each for each in made if part_of(each, apart) != part_of(first, apart)][:2]
    registry.colocate(first, last)
    last.inc()
    kept = reports.report_all()
    assert part_of(first, kept) == part_of(last, kept)
    assert {s.life for s in kept} != {s.life for s in apart}
    assert sum(reports.rows().values()) == 101
    late = registry.counter("late")
    registry.colocate(first, last, late)
    again = reports.report_all()
    assert {s.life for s in again} == {s.life for s in kept}
    assert part_of(late, again) == part_of(first, again)
    registry.colocate(other, late)
    assert part_of(other, renewed := reports.report_all()) == part_of(first, renewed) == part_of(last, renewed)
    assert sum(reports.rows().values()) == 101


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


def test_a_metric_that_outgrows_its_part_continues_in_a_new_life() -> None:
    """The new life begins after the acknowledged final record, and has more parts."""
    clock = ManualClock()
    lives = LifeHistory("app", max_bytes=30_000)
    sketch = Sketch()

    def histograms() -> list[Metric]:
        return [Histogram(name=name, count=sketch.count, sum=1.0, sketch=sketch.encode()) for name in "abcd"]

    sketch.add([1.0])
    [small] = lives.prepare(histograms(), clock.wall_ms())
    lives.acknowledged(small, clock.wall_ms(), clock.wall_ms())
    sketch.add([sign * 1.0109**power for power in range(6000) for sign in (1, -1)])
    for _ in range(2):
        [final] = lives.prepare(histograms(), clock.wall_ms())
        assert (final.snapshot.life, final.snapshot.final, final.snapshot.metrics) == (small.snapshot.life, True, [])
        assert lives.incomplete
        lives.failed(final, never_sent=True)
        assert not lives.new_life_due
    [final] = lives.prepare(histograms(), clock.wall_ms())
    lives.acknowledged(final, clock.wall_ms(), clock.wall_ms())
    assert lives.new_life_due
    grown = lives.prepare(histograms(), clock.wall_ms())
    assert not lives.incomplete
    assert len(grown) > 1
    assert all(len(pending.value) <= 30_000 for pending in grown)
    assert small.snapshot.life not in {pending.snapshot.life for pending in grown}
    found = [metric for pending in grown for metric in pending.snapshot.metrics]
    assert sorted((metric.name, metric.count) for metric in found if isinstance(metric, Histogram)) == [
        (name, 12_000) for name in "abcd"
    ]


def test_a_group_that_is_too_large_for_any_record_is_skipped() -> None:
    """The life continues with the other metrics; one error names the group and what to do."""
    clock = ManualClock()
    lives = LifeHistory("app", max_bytes=LIMIT)
    metrics = counters([f"{number:0500}" for number in range(40)])
    groups = {metric.identity: metrics[0].identity for metric in metrics}
    other = counters(["other"])
    [first] = lives.prepare(other, clock.wall_ms())
    lives.acknowledged(first, clock.wall_ms(), clock.wall_ms())
    for _ in range(2):
        [pending] = lives.prepare(metrics + other, clock.wall_ms(), groups=groups)
        assert (pending.snapshot.life, pending.snapshot.metrics) == (first.snapshot.life, other)
        assert lives.incomplete
        lives.acknowledged(pending, clock.wall_ms(), clock.wall_ms())
    [error] = lives.errors
    assert error.startswith(f"the counter '{0:0500}' and the metrics that are colocated with it have 21,")
    assert error.endswith("bytes, a record has 20,000 at most; colocate fewer metrics")
