"""The reporter to Kafka, with a scripted producer instead of librdkafka's."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from support.scripted_producer import KafkaBench, counts
from tallystream import ConfigError
from tallystream.record import Counter, Gauge, Histogram, Snapshot, encode
from tallystream.testing import assert_count, find


def test_a_record_has_what_can_be_merged() -> None:
    """It has the instance ID as key. Of a histogram it has count, sum, extremes and sketch, and no quantiles."""
    bench = KafkaBench(interval=2.5)
    bench.counter.inc(3)
    bench.registry.histogram("h").update(2.0)
    assert bench.reporter.report_now()
    [snapshot] = bench.snapshots
    assert (snapshot.seq, snapshot.every_ms, snapshot.final, snapshot.app) == (1, 2500, False, "app")
    assert bench.producers[0].keys == {b"i-1"}
    assert bench.reporter.sent == 1
    [counter, found] = snapshot.metrics
    assert counter == Counter(name="c", count=3)
    assert isinstance(found, Histogram)
    assert (found.count, found.sum, found.max, found.p50, found.mean) == (1, 2.0, 2.0, None, None)
    assert found.sketch


def test_report_now_times_out_and_the_newest_values_follow() -> None:
    """It returns False after `timeout`; when the broker responds again, the newest values are sent."""
    bench = KafkaBench()
    assert bench.reporter.report_now()
    bench.producers[0].deliveries = []
    begin = bench.clock.monotonic()
    bench.counter.inc(1)
    assert not bench.reporter.report_now(timeout=3)
    assert bench.clock.monotonic() - begin == pytest.approx(3)
    for _ in range(5):
        bench.counter.inc(1)
        assert not bench.reporter.report_now(timeout=1)
    assert counts(bench.snapshots) == [0, 1]
    bench.producers[0].deliveries = [True] * 10
    assert bench.reporter.report_now()
    assert counts(bench.snapshots) == [0, 1, 6]


def test_a_fatal_error_replaces_the_producer_and_the_life_continues() -> None:
    """After librdkafka's fatal error, the next report has a new producer, the same life and the next seq."""
    bench = KafkaBench()
    assert bench.reporter.report_now()
    fatal = KafkaError(KafkaError._FATAL, "fenced", True)
    bench.producers[0].deliveries = [fatal]
    assert not bench.reporter.report_now()
    assert bench.reporter.report_now()
    assert len(bench.producers) == 2
    assert [(s.life, s.seq) for s in bench.snapshots] == [(bench.snapshots[0].life, seq) for seq in (1, 2, 3)]


def test_the_thread_keeps_at_most_one_record_in_flight() -> None:
    """Reports that become due meanwhile are skipped; after the acknowledgement the newest values are sent once."""
    bench = KafkaBench(interval=1.0)
    reporter = bench.reporter
    reporter._open()
    producer = bench.producers[0]
    producer.deliveries = []
    bench.counter.inc()
    assert reporter._report()
    for _ in range(5):
        bench.counter.inc()
        assert reporter._report()
    assert counts(bench.snapshots) == [1]
    producer.deliveries = [True, None]
    assert reporter._continue_report()
    assert counts(bench.snapshots) == [1, 6]
    producer.deliveries = [True]
    assert not reporter._continue_report()
    assert counts(bench.snapshots) == [1, 6]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"interval": 0.001}, "interval"),
        ({"interval": 4000}, "interval"),
        ({"interval": "1"}, "interval"),
        ({"interval": None}, "interval"),
        ({"interval": float("nan")}, "interval"),
        ({"instance": ""}, "instance"),
        ({"instance": "ü" * 600}, "instance"),
        ({"instance": "a\0"}, "instance"),
        ({"bootstrap_servers": " "}, "bootstrap_servers"),
        ({"topic": ""}, "topic"),
        ({"topic": None}, "topic"),
        ({"topic": ".."}, "topic"),
        ({"topic": "a b"}, "topic"),
        ({"topic": "ü"}, "topic"),
        ({"topic": "x" * 250}, "topic"),
        ({"options": "hush"}, "options"),
        ({"options": [("sasl.password", "hush")]}, "options"),
        ({"options": {1: "hush"}}, "options"),
        ({"options": {"acks": "1"}}, "acks"),
        ({"options": {"request.required.acks": 0}}, "request.required.acks"),
        ({"options": {"enable.idempotence": False}}, "enable.idempotence"),
        ({"options": {"delivery.timeout.ms": 5}}, "delivery.timeout.ms"),
        ({"options": {"bootstrap.servers": "x"}}, "bootstrap.servers"),
    ],
)
def test_invalid_arguments_are_named(arguments: dict[str, Any], field: str) -> None:
    """The constructor raises the error, and no metric is left in the registry."""
    bench = KafkaBench()
    with pytest.raises(ConfigError) as caught:
        bench.make(own_metrics=True, **arguments)
    assert caught.value.field == field
    assert str(caught.value).startswith(field)
    assert "hush" not in str(caught.value)
    assert bench.registry.metrics() == [bench.counter]


def test_the_reporters_own_metrics_are_in_its_registry() -> None:
    """Delivered records and bytes, failures, the duration of a report and the time of the last error.

    What produce() raises is a failure, and the reporter continues.
    """
    bench = KafkaBench(own_metrics=True)
    assert bench.reporter.report_now()
    bench.producers[0].refuse = BufferError("queue full")
    assert not bench.reporter.report_now()
    assert bench.reporter.last_error == "a snapshot for 'metrics' can't be sent: queue full"
    tags = {"reporter": "kafka"}
    assert_count(bench.registry, "tallystream.reporter.sent", 1, tags=tags)
    assert_count(bench.registry, "tallystream.reporter.failed", 1, tags=tags)
    assert_count(bench.registry, "tallystream.reporter.bytes", len(encode(bench.snapshots[0])), tags=tags)
    assert_count(bench.registry, "tallystream.reporter.duration", 2, tags=tags)
    assert find(bench.registry, "tallystream.reporter.last_error", tags=tags) == Gauge(
        name="tallystream.reporter.last_error", tags=tags, value=1_700_000_000
    )
    bench.producers[0].refuse = None
    assert bench.reporter.report_now()


def test_a_failed_delivery_is_resolved_by_the_next_acknowledgement() -> None:
    """Within 24 h the life continues and has all values; later the next record is refused, and a new life follows.

    The failed record may be in the topic, so it counts as delivered in that case.
    """
    bench = KafkaBench()
    bench.counter.inc(110)
    assert bench.reporter.report_now()
    for hours, expected in ((23, [120]), (50, [140, 10])):
        bench.counter.inc(10)
        bench.producers[0].deliveries = [KafkaError(KafkaError._TIMED_OUT)]
        assert not bench.reporter.report_now()
        sent = len(bench.snapshots)
        bench.clock.advance(hours * 3600)
        bench.counter.inc(10 * (len(expected) - 1))
        bench.producers[0].deliveries = [True] * 9
        assert bench.reporter.report_now()
        assert counts(bench.snapshots[sent:]) == expected
    assert len({snapshot.life for snapshot in bench.snapshots}) == 2
    assert bench.reporter.last_error == (
        "a life has ended: its record was appended a day late, or this clock is a day ahead; "
        "a new life continues the counts"
    )


def grown_bench(**arguments: Any) -> KafkaBench:
    """Return a bench that has reported once and has 200 more counters: too many for one record."""
    bench = KafkaBench(**arguments)
    bench.counter.inc()
    assert bench.reporter.report_now()
    bench.reporter._lives.max_bytes = 10_000
    for number in range(200):
        bench.registry.counter(f"{number:060}").inc()
    return bench


def counted(snapshots: list[Snapshot]) -> int:
    """Return the sum of all counters over all lives; assert that each is in at most one part of a life."""
    rows = [(s.life, metric.name) for s in snapshots for metric in s.metrics]
    assert len(set(rows)) == len(rows)
    return sum(counts(snapshots))


def test_report_now_sends_an_outgrown_registry_in_a_new_life() -> None:
    """It returns True only after the records of the new life are acknowledged; nothing is counted twice."""
    bench = grown_bench()
    bench.counter.inc(2)
    assert bench.reporter.report_now()
    first, final, *new = bench.snapshots
    assert (final.life, final.seq, final.final, final.metrics) == (first.life, 2, True, [])
    assert len(new) > 2
    assert first.life not in {snapshot.life for snapshot in new}
    assert counted(bench.snapshots) == 203
    assert bench.reporter.failures == 0


def test_the_thread_sends_the_new_life_of_an_outgrown_registry_immediately() -> None:
    """It does not wait for the next interval, in which gauges would be missing from the sums."""
    bench = grown_bench()
    bench.producers[0].deliveries = [True, None, None]
    assert bench.reporter._report()
    assert [snapshot.final for snapshot in bench.snapshots] == [False, True]
    assert bench.reporter._continue_report()
    assert counted(bench.snapshots) == 201
    bench.producers[0].deliveries = [True] * 100
    while bench.reporter._continue_report():
        pass
    assert counted(bench.snapshots) == 201


def test_a_group_that_is_too_large_for_a_record_is_one_error() -> None:
    """All others are delivered; report_now() returns False while metrics are missing, so no offset is committed."""
    bench = grown_bench(own_metrics=True)
    bench.registry.colocate(*(metric for metric in bench.registry.metrics() if metric.name.isdigit()))
    for _ in range(2):
        bench.counter.inc()
        assert not bench.reporter.report_now()
    assert bench.reporter.failures == 1
    assert_count(bench.registry, "tallystream.reporter.failed", 1, tags={"reporter": "kafka"})
    assert bench.reporter.last_error is not None
    assert bench.reporter.last_error.startswith(f"metrics are not reported: the counter '{0:060}' and the metrics that")
    [found] = [m.count for m in bench.snapshots[-1].metrics if isinstance(m, Counter) and m.name == "c"]
    assert found == 3
