"""The parts of a life: what is published together, and when a life has outgrown them."""

from __future__ import annotations

import random
from collections import Counter as Counts

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from tallystream import MetricRegistry
from tallystream.kafka.life import LifeHistory
from tallystream.kafka.parts import Parts, parts_for
from tallystream.record import Counter, Histogram, Metric, Snapshot
from tallystream.testing import ManualClock

LIMIT = 20_000


def counters(names: list[str], count: int = 1) -> list[Metric]:
    return [Counter(name=name, count=count) for name in names]


class Reports:
    """A registry that is reported in records of at most `LIMIT` bytes, and the records that arrived."""

    def __init__(self) -> None:
        self.clock, self.registry = ManualClock(), MetricRegistry("app")
        self.lives = LifeHistory("app", max_bytes=LIMIT)
        self.snapshots: list[Snapshot] = []
        self.seqs: Counts[tuple[str, int]] = Counts()

    def report(self, result: str = "acknowledged", *, final: bool = False) -> None:
        """Report once; the record arrives if the delivery is `acknowledged` or `failed`, not if it is `unsent`."""
        metrics, groups = self.registry.snapshot(), self.registry.groups()
        for pending in self.lives.prepare(metrics, self.clock.wall_ms(), final=final, groups=groups):
            assert len(pending.value) <= LIMIT
            where = pending.snapshot.life, pending.snapshot.part
            self.seqs[where] += 1
            assert pending.snapshot.seq == self.seqs[where]
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

    Metrics that are colocated are in one part. Each part of a life counts its records.
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


@pytest.mark.parametrize("number", [2, 3, 5])
def test_a_group_is_in_one_part_and_stays_there(number: int) -> None:
    """Its metrics may be in different ones without it. If one of them has a part already, none can be found."""
    metrics, split = counters([f"metric.{number}" for number in range(20)]), Parts(number)
    group = metrics[0].identity
    assert split.place({metric.identity: group for metric in metrics})
    assert len(split.split(metrics)) == 1
    later = Parts(number)
    later.split(metrics)
    assert not later.place({metric.identity: group for metric in metrics})


def test_records_are_at_most_half_full_at_first() -> None:
    """The size includes what the sketches of histograms may grow to."""
    names = [f"{number:080}" for number in range(100)]
    assert parts_for(counters(names), 1_000_000) == 1
    assert parts_for(counters(names), 10_000) == 3
    assert parts_for([Histogram(name=name, count=0) for name in names], 100_000) == 7


def test_a_life_ends_when_the_final_records_of_all_parts_have_arrived() -> None:
    """Until then the next report is one of the same life."""
    lives, metrics = LifeHistory("app", max_bytes=LIMIT), counters([f"{number:060}" for number in range(300)])
    first, *others = lives.prepare(metrics, 0, final=True)
    for pending in others:
        lives.acknowledged(pending, 0, 0)
    lives.failed(first, never_sent=True)
    assert [lives.has(pending) for pending in (first, *others)] == [False, True, True]
    again, *_ = lives.prepare(metrics, 0, final=True)
    assert (again.snapshot.life, again.snapshot.seq) == (first.snapshot.life, 2)


def test_by_default_a_record_fits_into_kafkas_default_limit() -> None:
    """With its key and its frame, also if a life of one part grows."""
    names, lives = [f"{number:04}" + "x" * 500 for number in range(3_000)], LifeHistory("app")
    for number in (1, 3_000):
        for pending in lives.prepare(counters(names[:number]), 0):
            assert len(pending.value) < 1_000_000
            lives.acknowledged(pending, 0, 0)


def test_a_life_that_outgrows_its_parts_is_followed_by_one_with_twice_as_many() -> None:
    """Its size alone would give it as many parts as before, and one of them would be too large again."""
    reports = Reports()
    made = [reports.registry.counter(f"{number:060}") for number in range(300)]
    reports.report()
    assert len(reports.snapshots) == 3
    reports.registry.colocate(*made[:160])
    assert parts_for(reports.registry.snapshot(), LIMIT) == 3
    last = reports.report_all()
    assert len({snapshot.life for snapshot in last}) == 1
    assert max(snapshot.part for snapshot in last) == 5
    assert sum(len(snapshot.metrics) for snapshot in last) == 300


@pytest.mark.parametrize(("together", "most_parts"), [(190, 1024), (160, 3)], ids=["too large", "too many parts"])
def test_a_group_that_more_parts_do_not_help_is_left_out(
    monkeypatch: pytest.MonkeyPatch, together: int, most_parts: int
) -> None:
    """It has almost the size of a record, or there are as many parts as there may be. All other metrics follow."""
    monkeypatch.setattr("tallystream.kafka.life.MAX_PARTS", most_parts)
    reports = Reports()
    made = [reports.registry.counter(f"{number:060}") for number in range(300)]
    reports.registry.colocate(*made[:together])
    for _ in range(2):
        reports.report()
    assert len(reports.lives.errors) == 1
    assert reports.lives.incomplete
    assert {snapshot.part for snapshot in reports.snapshots} <= {0, 1, 2}
    assert {metric.name for metric in reports.snapshots[-1].metrics} <= {one.name for one in made[together:]}
    assert len(reports.rows()) == 300 - together


def test_a_new_life_is_due_when_the_last_one_has_ended() -> None:
    """It has not ended while a final record of it is in flight, or has failed. Then the next report comes first.

    After a life that was ended by the application, none is due.
    """
    names = [f"{number:060}" for number in range(300)]
    lives = LifeHistory("app", max_bytes=LIMIT)
    [first] = lives.prepare(counters(names[:1]), 0)
    lives.acknowledged(first, 0, 0)
    for is_delivered in (False, True):
        [final] = lives.prepare(counters(names), 0)
        assert (final.snapshot.final, final.snapshot.metrics) == (True, [])
        assert not lives.new_life_due
        if is_delivered:
            lives.acknowledged(final, 0, 0)
        else:
            lives.failed(final)
        assert lives.new_life_due == is_delivered
    ready = lives.prepare(counters(names), 0, final=True)
    assert first.snapshot.life not in {pending.snapshot.life for pending in ready}
    for pending in ready:
        lives.acknowledged(pending, 0, 0)
    assert not lives.new_life_due


def test_a_life_of_several_parts_begins_without_metrics() -> None:
    """They were removed when the life had outgrown its part. The record tells that the instance lives."""
    lives = LifeHistory("app", max_bytes=LIMIT)
    for metrics in (counters(["a"]), counters([f"{number:060}" for number in range(300)]), []):
        [pending] = lives.prepare(metrics, 0)
        lives.acknowledged(pending, 0, 0)
    assert (pending.snapshot.part, pending.snapshot.seq, pending.snapshot.metrics) == (0, 1, [])
