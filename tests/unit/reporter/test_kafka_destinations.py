"""One registry at several topics and clusters."""

from __future__ import annotations

import pytest

from support.scripted_producer import KafkaBench, counts
from tallystream import ConfigError
from tallystream.record import Position


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


def test_positions_of_a_renamed_registry_start_where_the_old_app_ended() -> None:
    """The positions cover what the new app counted, so nothing seems processed twice."""
    bench = KafkaBench()
    position = bench.registry.position("t", 0)

    def process(start: int, end: int) -> None:
        bench.counter.inc(end - start)
        position.advance(start, end)

    process(0, 100)
    assert bench.reporter.report_now()
    bench.registry.app = "new"
    process(100, 110)
    assert bench.reporter.report_now()
    assert bench.reporter.stop()
    process(110, 115)
    assert bench.reporter.report_now()
    covered = [(m.start, m.position) for s in bench.snapshots for m in s.metrics if isinstance(m, Position)]
    assert covered == [(0, 100), (100, 110), (100, 110), (100, 115)]
    assert counts(bench.snapshots) == [100, 10, 10, 5]


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
