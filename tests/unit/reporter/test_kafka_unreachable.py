"""The reporter to Kafka while no broker can be reached."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from support.scripted_producer import KafkaBench, counts

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
    assert seconds(30) == [message]
    assert (reporter.connected, reporter.failures, reporter.last_error) == (False, 1, message)
    bench.producers[0].deliveries = [True]
    assert seconds(1) == ["metrics arrive at b:9092 again"]
    assert reporter.connected
    assert seconds(20)[0].startswith("no metrics have arrived at b:9092 for 10 s")
    assert (reporter.connected, reporter.failures) == (False, 2)
    reporter.stop(timeout=1)
    reporter._open()
    bench.producers[1].deliveries = []
    assert seconds(9) == []


def test_connected() -> None:
    """It is True from an acknowledgement until an error of librdkafka or the end."""
    bench = KafkaBench()
    assert not bench.reporter.connected
    assert bench.reporter.report_now()
    assert bench.reporter.connected
    bench.errors[0](DOWN)
    assert not bench.reporter.connected
    assert bench.reporter.report_now()
    assert bench.reporter.connected
    assert bench.reporter.stop()
    assert not bench.reporter.connected


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


def test_stop_waits_for_the_first_connection() -> None:
    """If no connection has succeeded or failed yet, stop() waits until its deadline."""
    bench = KafkaBench()
    bench.reporter._ensure_open()
    bench.producers[0].deliveries = [None] * 30 + [True] * 10
    assert bench.reporter.stop()
    assert bench.clock.monotonic() == pytest.approx(3)


def test_stop_waits_for_a_broker_that_was_reached_after_a_failed_connection() -> None:
    """A connection that failed before, as to `localhost`'s other address, does not shorten the last report."""
    bench = KafkaBench()
    bench.reporter._ensure_open()
    for error in (REFUSED, DOWN):
        bench.errors[0](error)
    bench.counter.inc()
    bench.producers[0].deliveries = [None] * 30 + [True]
    assert bench.reporter.stop()
    assert bench.clock.monotonic() == pytest.approx(3)
    assert counts(bench.snapshots) == [1]
