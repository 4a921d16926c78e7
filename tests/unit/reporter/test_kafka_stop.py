"""The last report of the reporter to Kafka, and the closing of its producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.scripted_producer import KafkaBench, ScriptedProducer, counts
from tallystream import KafkaReporter, MetricRegistry
from tallystream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_stop_sends_a_final_record_and_a_later_life_continues() -> None:
    """A later life, also of another reporter, publishes only what was counted since."""
    bench = KafkaBench()
    bench.counter.inc(5)
    with bench.reporter:
        bench.counter.inc(1)
    assert bench.snapshots[-1].final
    assert counts(bench.snapshots)[-1] == 6
    bench.counter.inc(2)
    other = bench.make()
    assert other.report_now()
    assert counts(bench.snapshots)[-1] == 2
    assert bench.snapshots[-1].life != bench.snapshots[-2].life
    assert other.stop()
    assert other.stop()


def test_stop_without_an_acknowledgement_keeps_the_life() -> None:
    """It returns False in time and purges the record; the next start continues the life."""
    bench = KafkaBench()
    assert bench.reporter.report_now()
    bench.producers[0].deliveries = []
    bench.counter.inc(4)
    assert not bench.reporter.stop(timeout=2)
    assert bench.producers[0].purged == 1
    assert bench.reporter.failures == 0
    bench.counter.inc(1)
    assert bench.reporter.report_now()
    assert bench.snapshots[-1].life == bench.snapshots[0].life
    assert bench.snapshots[-1].seq == 3
    assert counts(bench.snapshots)[-1] == 5


class BlockedProducer(ScriptedProducer):
    """A producer that delivers nothing, and whose flush takes all its time, also after a purge."""

    def flush(self, seconds: float) -> int:
        """Advance the clock by the timeout."""
        self.clock.advance(seconds)
        return 1


def test_a_producer_that_does_not_close_ends_in_the_background() -> None:
    """stop() returns in time; its record may or may not have been delivered."""
    clock = ManualClock()
    registry = MetricRegistry("app", clock=clock)
    registry.counter("c").inc(4)
    producers: list[ScriptedProducer] = [BlockedProducer(clock), ScriptedProducer(clock)]
    producers[1].deliveries = [True]
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
    [first, again] = [producer.snapshots[-1] for producer in producers]
    assert counts([first, again]) == [4, 5]
    assert (again.life, again.seq) == (first.life, first.seq + 1)


class HeldLock:
    """A lock that another thread never releases; `waited` has the timeouts of all waits."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.waited = clock, list[float]()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Advance the clock by the timeout."""
        assert blocking
        assert timeout >= 0
        self.clock.advance(timeout)
        self.waited.append(timeout)
        return False


@pytest.mark.parametrize("lock", ["_report_lock", "_start_stop_lock"])
def test_stop_waits_for_other_threads_until_its_deadline(lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It returns False if a report, start() or another stop() does not end; the next stop() closes the reporter."""
    bench = KafkaBench()
    assert bench.reporter.report_now()
    held = HeldLock(bench.clock)
    with monkeypatch.context() as patched:
        patched.setattr(bench.reporter, lock, held)
        assert not bench.reporter.stop(timeout=0.2)
    assert sum(held.waited) == pytest.approx(0.2)
    assert bench.reporter.stop()
    assert bench.snapshots[-1].final
