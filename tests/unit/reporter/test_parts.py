"""A registry too large for one record: split, and a metric never changes its part within a life."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystream.reporter import ConsumerProgress, MetricRegistry
from tallystream.reporter._parts import Parts
from tallystream.reporter._since import identity_of
from tallystream.reporter.lives import Lives
from tallystream.reporter.record import Counter, Histogram, Identity, Metric, Position, Snapshot
from tallystream.reporter.sketch import Sketch
from tallystream.reporter.testing import ManualClock

LIMIT = 8000


def counters(names: list[str], count: int = 1) -> list[Metric]:
    return [Counter(name=name, count=count) for name in names]


@given(st.lists(st.lists(st.integers(0, 200), unique=True), min_size=1, max_size=5))
def test_a_metric_stays_in_its_part(rounds: list[list[int]]) -> None:
    """Metrics come and go, in any order: each is in one part for good, and no metric is lost or doubled."""
    parts, seen = Parts(LIMIT), dict[Identity, int]()
    for numbers in rounds:
        metrics = counters([f"{number}" * 20 for number in numbers])
        split = parts.split(metrics, {})
        assert sorted(identity_of(m) for part in split for m in part) == sorted(map(identity_of, metrics))
        for number, part in enumerate(split):
            for metric in part:
                assert seen.setdefault(identity_of(metric), number) == number


def test_a_group_is_never_torn_apart() -> None:
    """A counter and the positions that came much later are in one part, even where that part is full by then."""
    registry = MetricRegistry("app")
    progress = ConsumerProgress(registry, "processed")
    parts = Parts(LIMIT)
    parts.split(registry.snapshot(), registry.groups())
    for number in range(100):
        registry.counter(f"other.{number}")
    assert len(parts.split(registry.snapshot(), registry.groups())) > 1
    positions = [progress._position("topic", partition) for partition in range(20)]
    for position in positions:
        position.cover(0, 1)
    split = parts.split(registry.snapshot(), registry.groups())
    assert len([metric for metric in split[0] if isinstance(metric, Position)]) == 20
    assert split[0][0] == Counter(name="processed", count=0)


def test_groups_that_meet_become_one() -> None:
    """keep_together of a metric of each of two groups joins the two."""
    registry = MetricRegistry("app")
    a, b, c, d = (registry.counter(name) for name in "abcd")
    registry.keep_together(a, b)
    registry.keep_together(c, d)
    registry.keep_together(b, c)
    assert len(set(registry.groups().values())) == 1
    assert len(registry.groups()) == 4


def test_metrics_of_two_parts_that_are_to_be_kept_together_get_a_new_life_in_which_they_are() -> None:
    """Whenever keep_together is called; within a life no metric changes its part, and nothing is counted twice."""
    clock, registry = ManualClock(), MetricRegistry("app")
    made = [registry.counter(f"metric.{number}" * 10) for number in range(100)]
    lives = Lives("app", 1000, max_bytes=LIMIT)

    def report() -> list[Snapshot]:
        outgoing = lives.prepare(registry.snapshot(), clock.now(), groups=registry.groups())
        for each in outgoing:
            lives.acknowledged(each, clock.now().wall_ms, clock.now())
        return [each.snapshot for each in outgoing]

    def part_of(metric: Metric, snapshots: list[Snapshot]) -> int:
        [part] = [s.part for s in snapshots for each in s.metrics if identity_of(each) == metric.identity]
        return part

    first, last, other = made[0], made[-1], made[-2]
    for counter in made:
        counter.inc()
    apart = report()
    assert part_of(first, apart) != part_of(last, apart)
    registry.keep_together(first, last)
    last.inc()
    kept = report()
    assert part_of(first, kept) == part_of(last, kept)
    assert {s.life for s in kept} != {s.life for s in apart}
    assert sum(each.count for s in apart + kept for each in s.metrics if isinstance(each, Counter)) == 101
    late = registry.counter("late")
    registry.keep_together(late, first)
    registry.keep_together(first, last, late)
    again = report()
    assert {s.life for s in again} == {s.life for s in kept}
    assert part_of(late, again) == part_of(first, again)
    registry.keep_together(other, late)
    assert part_of(other, renewed := report()) == part_of(first, renewed) == part_of(last, renewed)
    assert sum(each.count for s in renewed for each in s.metrics if isinstance(each, Counter)) == 0


def test_one_of_a_group_that_comes_before_those_that_have_a_part_is_in_theirs() -> None:
    """A position made before its counter is listed before it: the group's part is the counter's, not the last one."""
    counter, position = Counter(name="c", count=1), Position(name="p", start=0, position=1)
    parts = Parts(LIMIT)
    others = counters([f"{number}" * 20 for number in range(100)])
    assert len(parts.split([counter, *others], {})) > 1
    groups = {identity_of(counter): "one", identity_of(position): "one"}
    split = parts.split([position, counter, *others], groups)
    assert split[0][:2] == [position, counter]


def test_a_large_registry_goes_out_in_several_records_and_each_counts_its_own_seq() -> None:
    """Parts have the same life, their own seq and every metric once; a life ends when all finals are acknowledged."""
    clock, names = ManualClock(), [f"metric.{number}" for number in range(300)]
    lives = Lives("app", 1000, max_bytes=LIMIT)
    first = lives.prepare(counters(names), clock.now())
    assert len(first) > 3
    assert [(o.snapshot.part, o.snapshot.seq) for o in first] == [(part, 1) for part in range(len(first))]
    assert all(len(outgoing.value) <= LIMIT for outgoing in first)
    assert sorted(m.name for o in first for m in o.snapshot.metrics) == sorted(names)
    lives.failed(first[0], never_sent=True)
    for outgoing in first[1:]:
        lives.acknowledged(outgoing, clock.now().wall_ms, clock.now())
    assert [lives.has(outgoing) for outgoing in first] == [False] + [True] * (len(first) - 1)
    final = lives.prepare(counters(names, 3), clock.now(), final=True)
    assert {o.snapshot.seq for o in final} == {2}
    for outgoing in final[1:]:
        lives.acknowledged(outgoing, clock.now().wall_ms, clock.now())
    assert not lives.closed
    lives.failed(final[0])
    [again, *_] = lives.prepare(counters(names, 3), clock.now(), final=True)
    assert (again.snapshot.life, again.snapshot.seq) == (first[0].snapshot.life, 3)


def test_a_metric_that_outgrows_its_part_gets_a_new_life_that_counts_on() -> None:
    """Sketches that grow beyond what a part can hold: the next records fit, in a new life, and nothing is doubled."""
    clock = ManualClock()
    lives = Lives("app", 1000, max_bytes=20_000)
    sketch = Sketch()

    def histograms() -> list[Metric]:
        return [Histogram(name=name, count=sketch.count, sum=1.0, sketch=sketch.encode()) for name in "abc"]

    sketch.add([1.0])
    [small] = lives.prepare(histograms(), clock.now())
    lives.acknowledged(small, clock.now().wall_ms, clock.now())
    sketch.add([sign * 1.0109**power for power in range(2000) for sign in (1, -1)])
    grown = lives.prepare(histograms(), clock.now())
    assert len(grown) == 3
    assert all(len(outgoing.value) <= 20_000 for outgoing in grown)
    assert small.snapshot.life not in {outgoing.snapshot.life for outgoing in grown}
    assert {o.snapshot.metrics[0].count for o in grown if isinstance(o.snapshot.metrics[0], Histogram)} == {4000}


def test_one_group_too_large_for_any_record_does_not_renew_the_life() -> None:
    """Where a new life would not help, the life stays; the record is handed over, and its refusal is an error."""
    clock = ManualClock()
    lives = Lives("app", 1000, max_bytes=LIMIT)
    metrics = counters([f"{number:0500}" for number in range(40)])
    groups = {identity_of(metric): "one" for metric in metrics}
    [first] = lives.prepare(metrics, clock.now(), groups=groups)
    assert len(first.value) > LIMIT
    lives.failed(first, never_sent=True)
    [second] = lives.prepare(metrics, clock.now(), groups=groups)
    assert second.snapshot.life == first.snapshot.life
