"""The last report of the reporter to Kafka, and the end of its producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.scripted_producer import KafkaBench, ScriptedProducer, counts
from tallystream import KafkaReporter, MetricRegistry
from tallystream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_stop_sends_a_final_record_and_a_new_start_counts_on() -> None:
    """The last record says final; a second life, even of another reporter, publishes only what came since."""
    bench = KafkaBench()
    bench.counter.inc(5)
    with bench.reporter:
        bench.counter.inc(1)
    assert bench.taken[-1].final
    assert counts(bench.taken)[-1] == 6
    bench.counter.inc(2)
    other = bench.make()
    assert other.report_now()
    assert counts(bench.taken)[-1] == 2
    assert bench.taken[-1].life != bench.taken[-2].life
    assert other.stop()
    assert other.stop()


def test_stop_without_an_answer_purges_and_the_same_life_goes_on() -> None:
    """A stop that nobody acknowledges returns False in time; the next start keeps the life, for its fate is unknown."""
    bench = KafkaBench()
    assert bench.reporter.report_now()
    bench.producers[0].verdicts = []
    bench.counter.inc(4)
    assert not bench.reporter.stop(timeout=2)
    assert bench.producers[0].purged == 1
    assert bench.reporter.failures == 0
    bench.counter.inc(1)
    assert bench.reporter.report_now()
    assert bench.taken[-1].life == bench.taken[0].life
    assert bench.taken[-1].seq == 3
    assert counts(bench.taken)[-1] == 5


class Stuck(ScriptedProducer):
    """Delivers nothing, and does not even serve a purge: each flush takes all the time that it is given."""

    def flush(self, seconds: float) -> int:
        """Let the time pass."""
        self.clock.advance(seconds)
        return 1


def test_a_producer_that_gives_nothing_up_is_left_to_itself() -> None:
    """stop() takes no longer than it may, for the last report and the end of the producer together.

    The record counts as one of unknown fate.
    """
    clock = ManualClock()
    registry = MetricRegistry("app", clock=clock)
    registry.counter("c").inc(4)
    producers: list[ScriptedProducer] = [Stuck(clock), ScriptedProducer(clock)]
    producers[1].verdicts = [True]
    waiting: Iterator[Any] = iter(producers)
    reporter = KafkaReporter(
        registry,
        bootstrap_servers="b:1",
        instance="i",
        own_metrics=False,
        producer=lambda *_: next(waiting),
    )
    assert not reporter.report_now(timeout=1)
    begin = clock.monotonic()
    assert not reporter.stop(timeout=0.2)
    assert clock.monotonic() - begin == pytest.approx(0.2)
    registry.counter("c").inc(1)
    assert reporter.report_now()
    [first, again] = [producer.taken[-1] for producer in producers]
    assert counts([first, again]) == [4, 5]
    assert (again.life, again.seq) == (first.life, first.seq + 1)


class RemovedLife:
    """A lock that another thread does not give back; it notes for how long it was waited for."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.waited = clock, list[float]()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Let the time pass."""
        assert blocking
        assert timeout >= 0
        self.clock.advance(timeout)
        self.waited.append(timeout)
        return False


@pytest.mark.parametrize("lock", ["_report_lock", "_start_stop_lock"])
def test_stop_waits_for_other_threads_no_longer_than_it_may(lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a report, a start or another stop() does not end, it returns False in time; the next one makes the end."""
    bench = KafkaBench()
    assert bench.reporter.report_now()
    taken = RemovedLife(bench.clock)
    with monkeypatch.context() as patched:
        patched.setattr(bench.reporter, lock, taken)
        assert not bench.reporter.stop(timeout=0.2)
    assert sum(taken.waited) == pytest.approx(0.2)
    assert bench.reporter.stop()
    assert bench.taken[-1].final


def test_a_stop_that_never_reported_is_quiet() -> None:
    """Stopping what was never started makes no producer and says that nothing is missing."""
    bench = KafkaBench()
    assert bench.reporter.stop()
    assert bench.producers == []
