"""The Kafka reporter and its brokers: its destination, brokers that can't be reached, and its end."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from support.scripted_producer import KafkaBench, counts
from tallystream import ConfigError
from tallystream.process import fork
from tallystream.testing import ManualClock


def test_a_registry_has_one_reporter_and_one_instance_at_a_destination() -> None:
    """A second reporter, or another instance ID, is rejected, since it would count twice."""
    bench = KafkaBench()
    assert bench.reporter.report_now()
    with pytest.raises(ConfigError, match="another reporter reports it to 'metrics'"):
        bench.make().report_now()
    assert bench.make(topic="other").report_now()
    assert bench.reporter.stop()
    with pytest.raises(ConfigError, match="is reported to 'metrics' as 'i-1' already"):
        bench.make(instance="i-2").report_now()
    assert bench.make().report_now()


@pytest.mark.parametrize("in_order", [True, False])
def test_a_renamed_registry_gets_a_new_life(*, in_order: bool) -> None:
    """A life belongs to one app; what the old app has is not published again."""
    bench = KafkaBench()
    bench.counter.inc(5)
    assert bench.reporter.report_now()
    bench.producers[0].deliveries = [True] * in_order
    assert bench.reporter.stop() is in_order
    bench.registry.app = "renamed"
    bench.counter.inc(2)
    other = bench.make()
    assert other.report_now()
    assert [s.app for s in bench.snapshots] == ["app", "app", "renamed"]
    assert bench.snapshots[-1].life != bench.snapshots[0].life
    assert counts(bench.snapshots) == [5, 5, 2]
    bench.registry.app = "again"  # while it is reported
    assert other.report_now()
    assert (bench.snapshots[-1].app, counts(bench.snapshots)[-1]) == ("again", 0)


def test_a_running_reporter_stops_when_the_cluster_is_found_in_use(caplog: pytest.LogCaptureFixture) -> None:
    """Its thread logs one error and sends nothing; it can be started again when the other one has stopped."""
    bench = KafkaBench(interval=0.01)
    bench.counter.inc(5)
    assert bench.reporter.report_now()
    other = bench.make(bootstrap_servers="other:9092", interval=0.01).start()
    assert other._thread is not None
    bench.clock.advance(1)
    other._thread._thread.join(10)
    assert not other._thread._thread.is_alive()
    assert not other._connection.is_open
    assert other.failures == 1
    assert caplog.text.count("the reporter has stopped: registry: 'app' can't be used; another reporter") == 1
    assert counts(bench.snapshots) == [5]
    other.restart_in_child()
    assert other._thread is None
    assert other.stop()
    assert bench.reporter.stop()
    bench.counter.inc(2)
    with other:
        pass
    assert counts(bench.snapshots)[-1] == 2


def test_reporters_to_two_clusters_report_everything_to_both() -> None:
    """The same topic of another cluster is another destination, also if an address changes its cluster."""
    bench = KafkaBench()
    bench.clusters["other:9092"] = "c-2"
    other = bench.make(bootstrap_servers="other:9092", instance="i-2")
    bench.counter.inc(3)
    assert bench.reporter.report_now()
    assert other.report_now()
    assert counts(bench.snapshots) == [3, 3]
    assert other.stop()
    bench.clusters["other:9092"] = "c-3"
    assert other.report_now()
    assert counts(bench.snapshots)[-1] == 3
    assert other.stop()
    bench.clusters["other:9092"] = "c-2"
    bench.counter.inc(2)
    assert other.report_now()
    assert counts(bench.snapshots)[-1] == 2


def test_nothing_is_sent_before_the_cluster_is_known() -> None:
    """Without a broker start() returns, and report_now() and stop() return False in time."""
    bench = KafkaBench(interval=3600)
    bench.clusters["b:9092"] = bench.clusters["other:9092"] = None
    other = bench.make(bootstrap_servers="other:9092")
    for reporter in (bench.reporter, other):
        reporter._open()
        assert reporter._report()
        begin = bench.clock.monotonic()
        assert not reporter.report_now(timeout=3)
        assert bench.clock.monotonic() - begin == pytest.approx(3)
    assert bench.snapshots == []
    bench.counter.inc(4)
    bench.producers[1].cluster = "c-1"
    assert other._report()
    assert counts(bench.snapshots) == [4]
    bench.producers[0].cluster = "c-1"
    with pytest.raises(ConfigError, match="another reporter"):
        bench.reporter.report_now()
    assert counts(bench.snapshots) == [4]


def test_brokers_without_a_cluster_id_are_compared_by_address() -> None:
    """Some servers with Kafka's protocol have no cluster ID: an equal address is the same destination."""
    bench = KafkaBench()
    bench.clusters.update({"b:9092": "", "other:9092": ""})
    assert bench.reporter.report_now()
    assert bench.make(bootstrap_servers="other:9092").report_now()
    with pytest.raises(ConfigError, match="another reporter"):
        bench.make().report_now()


REFUSED = KafkaError(KafkaError._TRANSPORT, "Connection refused")
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


def test_an_unreachable_broker_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """After ten seconds: one line with the address and the reason, one failure, and `connected` is False."""
    caplog.set_level(logging.INFO, "tallystream")
    bench = KafkaBench(interval=1.0)
    reporter = bench.reporter
    reporter._ensure_open()
    bench.producers[0].deliveries = []

    def seconds(number: int) -> list[str]:
        caplog.clear()
        for _ in range(number):
            bench.clock.advance(1)
            reporter._report()
        return [record.getMessage() for record in caplog.records if record.name == "tallystream"]

    reporter._report()
    for error in (REFUSED, DOWN):
        bench.errors[0](error)
    assert seconds(9) == []
    assert (reporter.connected, reporter.failures) == (False, 0)
    message = "no metrics have arrived at b:9092 for 10 s: Connection refused"
    assert seconds(30) == [f"<KafkaReporter of 'app' as 'i-1' to 'metrics'>: {message}"]
    assert (reporter.connected, reporter.failures, reporter.last_error) == (False, 1, message)
    bench.producers[0].deliveries = [True]
    assert seconds(1) == ["metrics arrive at b:9092 again"]
    assert reporter.connected
    assert "no metrics have arrived at b:9092 for 10 s" in seconds(20)[0]
    assert (reporter.connected, reporter.failures) == (False, 2)
    reporter.stop(timeout=1)
    reporter._open()
    bench.producers[1].deliveries = []
    assert seconds(9) == []


@pytest.mark.parametrize(("reached", "waited"), [(False, 1), (True, 4)])  # one of five seconds is reserved for closing
def test_stop_waits_one_second_for_a_broker_that_was_never_reached(
    caplog: pytest.LogCaptureFixture, *, reached: bool, waited: float
) -> None:
    """stop() logs that nothing was reported; a broker that was reached before is waited for."""
    bench = KafkaBench()
    bench.clusters["b:9092"] = "c-1" if reached else None
    if reached:
        assert bench.reporter.report_now()
    bench.reporter._ensure_open()
    bench.producers[0].deliveries = []
    for error in (REFUSED, DOWN):
        bench.errors[0](error)
    bench.counter.inc()
    bench.reporter._report()
    begin = bench.clock.monotonic()
    assert not bench.reporter.stop()
    assert bench.clock.monotonic() - begin == pytest.approx(waited)
    message = "this process reported no metrics: none have arrived at b:9092: Connection refused"
    assert (message in caplog.messages) is not reached


@pytest.mark.parametrize("errors", [(), (REFUSED, DOWN)])
def test_stop_waits_for_a_connection(errors: tuple[KafkaError, ...]) -> None:
    """The first one, also if one has failed that was made before it, as to `localhost`'s other address."""
    bench = KafkaBench()
    bench.reporter._ensure_open()
    for error in errors:
        bench.errors[0](error)
    bench.counter.inc()
    bench.producers[0].deliveries = [None] * 30 + [True]
    assert bench.reporter.stop()
    assert bench.clock.monotonic() == pytest.approx(3)
    assert counts(bench.snapshots) == [1]


@pytest.mark.parametrize("is_blocked", [False, True])
def test_stop_without_an_acknowledgement_keeps_the_life(*, is_blocked: bool) -> None:
    """It returns False in time and purges the record; the next start continues the life.

    If the producer is blocked, it ends in the background. Its record may or may not have been delivered.
    """
    bench = KafkaBench()
    assert bench.reporter.report_now()
    bench.producers[0].deliveries = []
    if is_blocked:
        bench.producers[0].flush = bench.producers[0].poll  # type: ignore[method-assign, assignment]
    bench.counter.inc(4)
    begin = bench.clock.monotonic()
    assert not bench.reporter.stop(timeout=2)
    assert bench.clock.monotonic() - begin == pytest.approx(2 if is_blocked else 1.6)
    assert bench.producers[0].purged == 1
    assert bench.reporter.failures == 0
    bench.counter.inc(1)
    assert bench.reporter.report_now()
    assert bench.snapshots[-1].life == bench.snapshots[0].life
    assert bench.snapshots[-1].seq == 3
    assert counts(bench.snapshots)[-1] == 5


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


def test_a_fork_waits_at_most_0_2_s_for_all_hooks_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two reports that do not end, a producer and a source share one deadline."""
    bench = KafkaBench()
    busy = [bench.make(topic=f"busy-{number}") for number in range(2)]
    source: Any = SimpleNamespace(kind="other", read=list)
    bench.registry.add_source(source)
    bench.reporter._open()
    bench.producers[0].deliveries = []
    bench.producers[0].flush = bench.producers[0].poll  # type: ignore[method-assign, assignment]
    bench.reporter._report()
    held = HeldLock(bench.clock)
    with monkeypatch.context() as patched:
        patched.setattr(fork, "monotonic", bench.clock.monotonic)
        for reporter in busy:
            patched.setattr(reporter, "_report_lock", held)
        patched.setattr(bench.registry._sources[0], "lock", held)
        fork._before()
        fork._in_parent()
    assert bench.clock.monotonic() == pytest.approx(0.2)
    assert not bench.reporter._connection.is_open
    assert not bench.reporter._report_lock.locked()
