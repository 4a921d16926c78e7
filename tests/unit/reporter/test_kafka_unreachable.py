"""The reporter to Kafka while no broker can be reached."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from support.scripted_producer import KafkaBench, counts

REFUSED = KafkaError(KafkaError._TRANSPORT, "Connection refused")
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


def test_a_broker_that_can_not_be_reached_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """After ten seconds without an acknowledgement: a line with the address and the reason, a failure, `connected`."""
    caplog.set_level(logging.INFO, "tallystream")
    bench = KafkaBench(interval=1.0)
    reporter = bench.reporter
    reporter._ensure_open()
    bench.producers[0].verdicts = []

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
    said = "no metrics have arrived at b:9092 for 10 s: Connection refused"
    assert seconds(30) == [said]
    assert (reporter.connected, reporter.failures, reporter.last_error) == (False, 1, said)
    bench.producers[0].verdicts = [True]
    assert seconds(1) == ["metrics arrive at b:9092 again"]
    assert reporter.connected
    assert seconds(20)[0].startswith("no metrics have arrived at b:9092 for 10 s")
    assert (reporter.connected, reporter.failures) == (False, 2)
    reporter.stop(timeout=1)
    reporter._open()
    bench.producers[1].verdicts = []
    assert seconds(9) == []


def test_the_warning_waits_for_three_intervals(caplog: pytest.LogCaptureFixture) -> None:
    """A reporter of every minute says so after three of them."""
    bench = KafkaBench(interval=60.0)
    bench.reporter._open()
    bench.producers[0].verdicts = []
    bench.reporter._report()
    for seconds, failures in ((179, 0), (2, 1)):
        bench.clock.advance(seconds)
        bench.reporter._continue_report()
        assert bench.reporter.failures == failures
    assert bench.reporter.last_error == "no metrics have arrived at b:9092 for 180 s: the broker does not answer"


def test_whether_it_is_connected() -> None:
    """Not before the first acknowledgement, not after an error of librdkafka until the next one, not after the end."""
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


@pytest.mark.parametrize(("reached", "waited"), [(False, 1), (True, 4)])  # of five seconds one is for the end
def test_the_end_waits_less_for_a_broker_that_was_never_reached(
    caplog: pytest.LogCaptureFixture, *, reached: bool, waited: float
) -> None:
    """`stop()` gives up after a second, and says so, where every connection failed; another broker may come back."""
    bench = KafkaBench()
    bench.clusters["b:9092"] = "c-1" if reached else None
    if reached:
        assert bench.reporter.report_now()
    bench.reporter._ensure_open()
    bench.producers[0].verdicts = []
    for error in (REFUSED, DOWN):
        bench.errors[0](error)
    bench.counter.inc()
    bench.reporter._report()
    begin = bench.clock.monotonic()
    assert not bench.reporter.stop()
    assert bench.clock.monotonic() - begin == pytest.approx(waited)
    said = "this process reported no metrics: none have arrived at b:9092: Connection refused"
    assert (said in caplog.messages) is not reached


def test_the_end_waits_for_a_first_connection() -> None:
    """A process that ends before its first connection is made, or failed, waits for it as long as `stop()` may."""
    bench = KafkaBench()
    bench.reporter._ensure_open()
    bench.producers[0].verdicts = [None] * 30 + [True] * 10
    assert bench.reporter.stop()
    assert bench.clock.monotonic() == pytest.approx(3)


def test_the_end_waits_for_a_broker_that_was_reached_after_a_failed_connection() -> None:
    """A connection refused before the broker answered (at `localhost`'s other address) shortens no last report."""
    bench = KafkaBench()
    bench.reporter._ensure_open()
    for error in (REFUSED, DOWN):
        bench.errors[0](error)
    bench.counter.inc()
    bench.producers[0].verdicts = [None] * 30 + [True]
    assert bench.reporter.stop()
    assert bench.clock.monotonic() == pytest.approx(3)
    assert counts(bench.taken) == [1]
