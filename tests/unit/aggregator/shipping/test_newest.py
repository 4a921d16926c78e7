"""When the newest sums are shown, and when they are withdrawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.subscription import ScriptedSubscription, record
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping import newest
from tallystream_aggregator.shipping.newest import NewestSums
from tallystream_aggregator.shipping.points import PointMapper
from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink

if TYPE_CHECKING:
    from tallystream_aggregator.shipping.subscription import Record


class Bench:
    """A shipper to a store of the newest sums. `now_s` is the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, prometheus: PrometheusSink) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(newest.time, "monotonic", lambda: self.now_s)
        self.subscription: Any = ScriptedSubscription([])
        self.health = Health("ship", HealthSettings(own_metrics=False))
        self.shipper = NewestSums(self.subscription, PointMapper(Topics()), prometheus, health=self.health)

    def step(self, *records: Record, end: int | None = 0) -> bool:
        """Ship these records, and let the brokers answer with this end."""
        self.subscription.records, self.subscription.end = list(records), end
        self.subscription.now_s = self.now_s
        return self.shipper.step()

    def reason(self) -> str | None:
        """Return why it is not ready."""
        return self.health.status.unready_reason()


@pytest.fixture
def prometheus() -> PrometheusSink:
    """A sink that listens nowhere, and renders its text in no time: it is never an earlier one."""
    return PrometheusSink("127.0.0.1", 0)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, prometheus: PrometheusSink) -> Bench:
    """A shipper to that sink."""
    return Bench(monkeypatch, prometheus)


def test_the_newest_sums_are_shown_when_an_end_is_reached(bench: Bench, prometheus: PrometheusSink) -> None:
    """Later ends do not matter. No sum is shown before."""
    assert not bench.step(record(1), record(2, "m"), record(3), end=5)
    assert prometheus.metrics().text == "the newest sums are not known yet\n"
    assert bench.reason() == "waiting for the newest sums"
    bench.now_s += 3
    assert bench.step(record(4), end=100)
    assert " 4\n" in prometheus.metrics().text
    assert bench.reason() is None
    assert bench.step(record(6))
    assert " 6\n" in prometheus.metrics().text


def test_the_newest_sums_are_withdrawn_if_no_later_end_is_reached(bench: Bench, prometheus: PrometheusSink) -> None:
    """The time of the end counts, not the time at which it was reached."""
    bench.subscription.at = 10
    assert bench.step(end=10)
    assert prometheus.metrics().status == 200
    bench.now_s += 20
    assert bench.step(end=500)
    bench.now_s += 11
    assert not bench.step(end=None)
    assert prometheus.metrics()[::2] == (503, "the newest sums were last known 31 s ago\n")
    bench.subscription.at = 500
    assert bench.step(end=None)
    assert prometheus.metrics().status == 200


def test_no_sums_are_shown_while_a_topic_that_was_created_again_is_read(
    bench: Bench, prometheus: PrometheusSink
) -> None:
    """When its end is reached, the newest are shown, and none of the earlier topic."""
    assert not bench.step(end=1)
    bench.now_s += 3
    assert bench.step(record(1), end=1)
    ask = bench.subscription.ask

    def created_again() -> int | None:
        bench.subscription.changes, bench.subscription.at, bench.subscription.ask = 2, -1, ask
        return ask()

    bench.subscription.ask = created_again
    assert not bench.step(record(9, "gone"), end=1)
    assert not bench.step(record(0), end=3)
    assert prometheus.metrics().status == 503
    assert bench.step(record(7), end=3)
    text = prometheus.metrics().text
    assert (" 7\n" in text, "gone" in text) == (True, False)


def test_an_empty_topic_is_up_to_date(bench: Bench, prometheus: PrometheusSink) -> None:
    """Its end is 0, and the position, too."""
    bench.subscription.at = 0
    assert bench.step(end=0)
    assert prometheus.metrics().status == 200
