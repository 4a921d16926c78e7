"""The shipper to a store of only the newest sums: what is read, and when the sums are shown and withdrawn."""

from __future__ import annotations

from typing import Any

import pytest

from support.shipper import record
from support.simulation.direct import TOPICS, Direct
from tallystream.process.signals import SignalSafeEvent
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.shipping import shipper as module
from tallystream_aggregator.shipping.points import PointMapper
from tallystream_aggregator.shipping.shipper import NoLease, Shipper
from tallystream_aggregator.shipping.tail import Tail
from tallystream_aggregator.sinks.base import Refused, SinkUnavailableError
from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink
from tallystream_aggregator.stream.broker import BrokerError, Place
from tallystream_dashboards.terminal import latest_reader
from tallystream_dashboards.terminal.latest_reader import LatestReader

AGG = Place(TOPICS.agg, 0)


class Bench:
    """A shipper to a sink that listens nowhere, and a simulated broker. `now_s` is the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now_s)
        self.direct = Direct()
        self.sink = PrometheusSink("127.0.0.1", 0)
        self.health = Health("ship", HealthSettings(own_metrics=False))
        self.stop = SignalSafeEvent()
        self.shipper = Shipper(
            NoLease(),
            Tail(self.direct.broker, lambda: [AGG]),
            PointMapper(TOPICS),
            self.sink,
            None,
            stop=self.stop,
            health=self.health,
        )

    def step(self) -> bool:
        """Ship what there is, after the brokers were asked."""
        self.now_s += module.ASK_INTERVAL_S
        return self.shipper.step()

    def publish(self, *counts: int, name: str = "n") -> None:
        """Append sums of a metric."""
        for count in counts:
            one = record(count, name)
            self.direct.cluster.append(AGG, one.key, one.value)

    def fail(self, what: str) -> None:
        """Let no request succeed."""
        raise BrokerError(f"{what}: no answer")

    def text(self) -> str:
        """Return what `/metrics` answers."""
        return self.sink.metrics().text


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A shipper."""
    return Bench(monkeypatch)


def test_the_newest_sums_are_shown_when_the_end_is_reached(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sum is shown before, and the shipper is not ready."""
    monkeypatch.setattr(module, "MAX_RECORDS", 2)
    bench.publish(1, 2, 3)
    reasons: list[str | None] = []
    write = bench.sink.write

    def writing(points: Any) -> list[Refused]:
        reasons.append(bench.health.status.unready_reason())
        return write(points)

    monkeypatch.setattr(bench.sink, "write", writing)
    assert not bench.step()
    assert reasons == ["waiting for the newest sums"]
    assert bench.text() == "the newest sums are not known yet\n"
    assert bench.health.status.unready_reason() == "waiting for the newest sums"
    assert bench.step()
    assert " 3.0\n" in bench.text()
    assert bench.health.status.unready_reason() is None
    bench.publish(6)
    assert bench.step()
    assert " 6.0\n" in bench.text()


def test_the_newest_sums_are_withdrawn_while_the_brokers_do_not_answer(bench: Bench) -> None:
    """Half a minute after they answered last. They are shown again with what was published meanwhile."""
    bench.publish(1)
    assert bench.step()
    bench.direct.fail = bench.fail
    bench.now_s += 28
    assert bench.step()
    assert not bench.step()
    assert bench.sink.metrics()[::2] == (503, "the newest sums were last known 32 s ago\n")
    assert bench.health.status.unready_reason() == "waiting for the newest sums"
    bench.direct.fail = lambda _: None
    bench.publish(2)
    assert bench.step()
    assert " 2.0\n" in bench.text()


def test_sums_that_come_faster_than_they_are_read_are_withdrawn(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time at which the end was known counts, not the time at which it was reached."""
    assert bench.step()
    bench.publish(1)
    write = bench.sink.write

    def slow(points: Any) -> list[Refused]:
        bench.now_s += 31
        return write(points)

    monkeypatch.setattr(bench.sink, "write", slow)
    assert not bench.step()
    assert bench.sink.metrics().status == 503


def test_a_topic_whose_records_are_gone_is_read_from_its_beginning(bench: Bench) -> None:
    """It was created again, and may be longer than the old one, or its beginning or its end was cut off.

    No sum that it does not have is shown any more.
    """
    bench.publish(1, name="gone")
    assert bench.step()
    bench.direct.cluster.delete(AGG.topic)
    assert bench.step()  # for half a minute
    bench.direct.cluster.create(AGG.topic, 1)
    bench.publish(7, 8)
    assert bench.step()
    assert (" 8.0\n" in bench.text(), "gone" in bench.text()) == (True, False)
    bench.publish(2, 3, 4, name="m")
    agg = bench.direct.cluster.partition(AGG)
    agg.delete_before(3)
    assert bench.step()
    assert (" 4.0\n" in bench.text(), " 8.0\n" in bench.text()) == (True, False)
    agg.truncate(4)
    assert bench.step()
    assert (" 3.0\n" in bench.text(), " 4.0\n" in bench.text()) == (True, False)


def test_a_command_reads_only_what_is_new(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    """Also after an outage. Those of a topic that was created again replace the earlier ones."""
    monkeypatch.setattr(latest_reader, "check_login", lambda _kafka: None)
    monkeypatch.setattr(latest_reader, "KafkaBroker", lambda *_: bench.direct.broker)
    reader = LatestReader(clients.Cluster("b:9092"))
    bench.publish(1, name="a")
    assert reader.refresh().measurements() == ["a"]
    bench.direct.fail = bench.fail
    with pytest.raises(SinkUnavailableError, match="no answer"):
        reader.refresh()
    bench.direct.fail = lambda _: None
    bench.direct.requests.clear()
    bench.publish(1, name="b")
    assert reader.refresh().measurements() == ["a", "b"]
    assert bench.direct.requests.count("read") == 1
    bench.direct.cluster.delete(AGG.topic)
    bench.direct.cluster.create(AGG.topic, 1)
    bench.publish(1, name="c")
    assert reader.refresh().measurements() == ["c"]
