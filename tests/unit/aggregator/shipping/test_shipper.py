"""The loop: write, then commit; outages of the store and the brokers; when the newest sums are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tallystream.errors import ConfigError
from tallystream.signals import SignalSafeEvent
from tallystream_aggregator import sums
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping import shipper as module
from tallystream_aggregator.shipping.points import PointMapper
from tallystream_aggregator.shipping.rejected import LettersUnavailableError
from tallystream_aggregator.shipping.shipper import EveryPoint, NewestPoints, Shipper
from tallystream_aggregator.shipping.subscription import Place, Record
from tallystream_aggregator.sinks.base import Rejections, SinkUnavailableError
from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.sinks.base import Point

AGG = Place("metrics-agg", 0)


def record(offset: int, name: str = "n", count: int | None = None) -> Record:
    """A row of `metrics-agg`, whose count is its offset by default."""
    row = sums.Sum(app="a", name=name, type="counter", count=offset if count is None else count, ts=offset)
    return Record(AGG.topic, offset, name.encode(), sums.encode(row))


class ScriptedSubscription:
    """A subscription with `metrics-agg`. `log` has what was written (by the store), and committed."""

    def __init__(self, log: list[str]) -> None:
        self.places: frozenset[Place] | None = frozenset({AGG})
        self.changes = 1
        self.records: list[Record] = []
        self.at = -1
        self.end: int | None = 0
        self.on_wait: list[int] = []
        self.log = log

    def read(self, limit: int, timeout_s: float) -> list[Record]:
        """Return the records."""
        assert (limit, timeout_s) == (module.MAX_RECORDS, module.POLL_S)
        found, self.records = self.records, []
        self.at = found[-1].offset + 1 if found else self.at
        return found

    def done(self) -> None:
        """Note it."""
        self.log.append("done")

    def wait(self, seconds: float) -> None:
        """Let the group decide, if a test wants that."""
        assert seconds <= module.POLL_S
        self.changes += self.on_wait.pop(0) if self.on_wait else 0

    def position(self, place: Place) -> int:
        """Return the next offset."""
        assert place == AGG
        return self.at

    def check_topics(self, timeout_s: float) -> None:
        """Fail while there is no end."""
        assert timeout_s
        if self.end is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def end_of(self, place: Place, timeout_s: float) -> int:
        """Return the end."""
        assert (place, timeout_s) == (AGG, module.END_TIMEOUT_S)
        assert self.end is not None
        return self.end


class ScriptedSink:
    """A store that raises `errors` first. A count of 666 is rejected."""

    def __init__(self, log: list[str]) -> None:
        self.log, self.refusals = log, Rejections("Test")
        self.errors: list[Exception] = []
        self.setups = 0

    def setup(self) -> None:
        """Count the calls."""
        self.setups += 1

    def write(self, points: Sequence[Point]) -> None:
        """Note the points."""
        if self.errors:
            raise self.errors.pop(0)
        for point in points:
            if point.fields["count"] == 666:
                self.refusals.add(point, "no")
        self.log.append(" ".join(str(point.fields["count"]) for point in points))

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Letters:
    """`RejectedPoints` whose first `failures` attempts fail."""

    topic = "metrics-dead"

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.sent: list[int] = []

    def send(self, points: list[tuple[Point, str]]) -> None:
        """Note how many there are."""
        self.sent.append(len(points))
        if points and self.failures:
            self.failures -= 1
            raise LettersUnavailableError("metrics-dead is unavailable.")


class Bench:
    """A shipper to a store of every point, or with `prometheus` to one of the newest. `now_s` is the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, prometheus: PrometheusSink | None = None) -> None:
        self.log: list[str] = []
        self.now_s = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr("tallystream_aggregator.shipping.retries.pause_s", lambda _: 0.0)
        self.subscription: Any = ScriptedSubscription(self.log)
        self.sink, self.letters = ScriptedSink(self.log), Letters()
        self.stop = SignalSafeEvent()
        self.health = Health("ship", HealthSettings(own_metrics=False))
        letters: Any = self.letters
        self.every = EveryPoint(self.sink, letters, self.subscription, stop=self.stop, health=self.health)
        output = self.every if prometheus is None else NewestPoints(prometheus, health=self.health)
        self.shipper = Shipper(self.subscription, PointMapper(Topics()), output, health=self.health)

    def step(self, *records: Record, end: int | None = 0) -> bool:
        """Ship these records, and let the brokers answer with this end."""
        self.subscription.records, self.subscription.end = list(records), end
        return self.shipper.step()

    def reason(self) -> str | None:
        """Return why it is not ready."""
        return self.health.status.unready_reason()

    def metric(self, name: str) -> float:
        """Return an internal metric."""
        samples = {family.name: family.samples for family in self.health.internal_metrics.families()}
        return samples[name][0].value


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A shipper to a store of every point."""
    return Bench(monkeypatch)


def test_points_are_written_in_order_and_committed_after_that(bench: Bench) -> None:
    """Then the shipper is ready."""
    assert bench.reason() == "starting"
    assert bench.step(record(1), record(2))
    assert bench.step(record(3))
    assert bench.log == ["1 2", "done", "3", "done"]
    assert bench.reason() is None
    assert (bench.metric("tallystream_ship_points_total"), bench.sink.setups) == (3, 1)


def test_nothing_is_committed_and_nothing_is_read_while_the_store_is_unavailable(bench: Bench) -> None:
    """The same points are written when it is available again."""
    reasons: list[str | None] = []
    bench.sink.errors = [SinkUnavailableError("the store is away.")] * 3
    wait = bench.subscription.wait

    def waiting(seconds: float) -> None:
        reasons.append(bench.reason())
        assert bench.log == []
        bench.now_s += seconds
        wait(seconds)

    bench.subscription.wait = waiting
    for error in bench.sink.errors:
        error.retry_after_s = 0.1
    assert bench.step(record(1), record(2))
    assert reasons == ["waiting for the store"] * 3
    assert bench.log == ["1 2", "done"]


def test_what_waited_for_the_store_is_dropped_if_another_shipper_takes_over(bench: Bench) -> None:
    """The other one writes it, and later points. An older point must not follow them."""
    bench.sink.errors = [SinkUnavailableError("the store is away.", retry_after_s=1.0)]
    bench.subscription.on_wait = [1]
    assert not bench.step(record(1))
    assert bench.log == []
    for places, reason in ((None, "waiting for the group"), (frozenset(), "standing by")):
        bench.subscription.places = places
        bench.subscription.changes += 1
        assert not bench.step()
        assert bench.reason() == reason
        assert bench.health.status.unhealthy_reason() is None
    bench.subscription.places = frozenset({AGG})
    bench.subscription.changes += 1
    assert bench.step(record(5))
    assert bench.log == ["5", "done"]


def test_a_stop_ends_the_wait_for_the_store(bench: Bench) -> None:
    """Nothing is committed. The next start reads the points again."""
    bench.sink.errors = [SinkUnavailableError("the store is away.")] * 9
    bench.stop.set()
    assert not bench.step(record(1))
    assert bench.log == []


def test_wrong_settings_end_the_shipper(bench: Bench) -> None:
    """Waiting does not help."""
    bench.sink.errors = [ConfigError("--bucket", "x", "create it")]
    with pytest.raises(ConfigError):
        bench.step(record(1))
    assert bench.log == []


def test_a_rejected_point_is_counted_once_however_often_it_is_written(bench: Bench) -> None:
    """It is written again while its dead letter can't be sent. Health names the topic then, not the store."""
    reasons: list[str | None] = []
    bench.letters.failures = 5
    send = bench.letters.send

    def sending(points: list[tuple[Point, str]]) -> None:
        reasons.append(bench.health.status.waiting_for)
        send(points)

    bench.letters.send = sending  # type: ignore[method-assign]
    assert bench.step(record(1, count=666))
    assert bench.letters.sent == [1] * 6
    assert set(reasons[1:]) == {"metrics-dead"}
    assert bench.metric("tallystream_ship_rejected_total") == 1
    assert bench.log[-1] == "done"


def test_the_gauge_of_an_unavailable_store_is_about_the_store_only(bench: Bench) -> None:
    """`tallystream.ship.store_unavailable` is 1 only while the shipper waits for the store."""
    found = []
    for waiting in (None, "metrics-dead", "the store"):
        bench.health.status.waiting_for = waiting
        found.append(bench.metric("tallystream_ship_store_unavailable"))
    assert found == [0, 0, 1]


def test_a_shipper_whose_brokers_do_not_answer_is_not_ready(bench: Bench) -> None:
    """It goes on when they do. For half a minute, this is no reason."""
    assert bench.step(end=9)
    bench.now_s += 29
    assert bench.step(end=None)
    bench.now_s += 2
    assert not bench.step(end=None)
    assert bench.reason() == "waiting for the brokers"
    bench.now_s += 2
    assert bench.step(end=9)
    assert bench.reason() is None


@pytest.fixture
def prometheus() -> PrometheusSink:
    """A sink that listens nowhere."""
    return PrometheusSink("127.0.0.1", 0)


@pytest.fixture
def latest(monkeypatch: pytest.MonkeyPatch, prometheus: PrometheusSink) -> Bench:
    """A shipper to a store of the newest sums."""
    return Bench(monkeypatch, prometheus)


def test_the_newest_sums_are_shown_when_an_end_is_reached(latest: Bench, prometheus: PrometheusSink) -> None:
    """Later ends do not matter. No sum is shown before."""
    assert not latest.step(record(1), record(2, "m"), record(3), end=5)
    assert prometheus.metrics().text == "the newest sums are not known yet\n"
    assert latest.reason() == "waiting for the newest sums"
    latest.now_s += 3
    assert latest.step(record(4), end=100)
    assert " 4\n" in prometheus.metrics().text
    assert latest.reason() is None
    assert latest.step(record(6))
    assert " 6\n" in prometheus.metrics().text


def test_the_newest_sums_are_withdrawn_if_no_later_end_is_reached(latest: Bench, prometheus: PrometheusSink) -> None:
    """The time of the end counts, not the time at which it was reached."""
    latest.subscription.at = 10
    assert latest.step(end=10)
    assert prometheus.metrics().status == 200
    latest.now_s += 20
    assert latest.step(end=500)
    latest.now_s += 11
    assert not latest.step(end=None)
    assert prometheus.metrics()[::2] == (503, "the newest sums were last known 31 s ago\n")
    latest.subscription.at = 500
    assert latest.step(end=None)
    assert prometheus.metrics().status == 200


def test_no_sums_are_shown_while_a_topic_that_was_created_again_is_read(
    latest: Bench, prometheus: PrometheusSink
) -> None:
    """When its end is reached, the newest are shown."""
    assert not latest.step(end=1)
    latest.now_s += 3
    assert latest.step(record(1), end=1)
    latest.subscription.changes, latest.subscription.at = 2, -1
    assert not latest.step(record(0), end=3)
    assert prometheus.metrics().status == 503
    assert latest.step(record(7), end=3)
    assert " 7\n" in prometheus.metrics().text


def test_an_empty_topic_is_up_to_date(latest: Bench, prometheus: PrometheusSink) -> None:
    """Its end is 0, and the position, too."""
    latest.subscription.at = 0
    assert latest.step(end=0)
    assert prometheus.metrics().status == 200
