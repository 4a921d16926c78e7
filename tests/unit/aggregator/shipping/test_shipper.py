"""The loop: write, then commit; outages of the store and the brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from support.shipper import AGG, ScriptedLease, ScriptedTail, record
from tallystream.errors import ConfigError
from tallystream.process.signals import SignalSafeEvent
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping import shipper as module
from tallystream_aggregator.shipping.dead_letters import LettersUnavailableError
from tallystream_aggregator.shipping.points import PointMapper
from tallystream_aggregator.shipping.shipper import Shipper
from tallystream_aggregator.shipping.tail import Record
from tallystream_aggregator.sinks.base import Point, Refused, SinkUnavailableError


class ScriptedSink:
    """A store that raises `errors` first. A count of 666 is rejected."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.errors: list[Exception] = []
        self.setups = 0

    def setup(self) -> None:
        """Count the calls."""
        self.setups += 1

    def write(self, points: Sequence[Point]) -> list[Refused]:
        """Note the points."""
        if self.errors:
            raise self.errors.pop(0)
        if points:
            self.log.append(" ".join(str(point.fields["count"]) for point in points))
        return [Refused(point, "no") for point in points if point.fields["count"] == 666]

    def close(self) -> None:
        """Do nothing."""


class Letters:
    """`DeadLetters` whose first `failures` attempts fail."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.sent: list[int] = []

    def send(self, points: list[Refused]) -> None:
        """Note how many there are."""
        self.sent.append(len(points))
        if points and self.failures:
            self.failures -= 1
            raise LettersUnavailableError("metrics-dead", "no answer")


class Bench:
    """A shipper to a store of every point. `now_s` is the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.now_s = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(module.log, "filters", [])  # of other tests, the last minute may have the same errors
        self.drawn: list[tuple[float, float]] = []
        monkeypatch.setattr(module.random, "uniform", lambda *limits: self.drawn.append(limits) or 0.0)
        self.lease, self.tail = ScriptedLease(self.log), ScriptedTail()
        self.sink, self.letters = ScriptedSink(self.log), Letters()
        self.stop = SignalSafeEvent()
        self.health = Health("ship", HealthSettings(own_metrics=False))
        lease: Any = self.lease
        tail: Any = self.tail
        letters: Any = self.letters
        self.shipper = Shipper(
            lease, tail, PointMapper(Topics()), self.sink, letters, stop=self.stop, health=self.health
        )

    def step(self, *records: Record, answers: bool = True) -> bool:
        """Ship these records, and let the brokers answer or not."""
        self.tail.records, self.tail.answers = list(records), answers
        self.now_s += 1
        return self.shipper.step()

    def reason(self) -> str | None:
        """Return why it is not ready."""
        return self.health.status.unready_reason()

    def metric(self, name: str) -> float:
        """Return an internal metric."""
        families = self.health.internal_metrics.families()
        return next(sample.value for family in families for sample in family.samples if sample.name == name)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A shipper to a store of every point."""
    return Bench(monkeypatch)


def test_points_are_written_in_order_and_committed_after_that(bench: Bench) -> None:
    """Then the shipper is ready."""
    assert bench.reason() == "starting"
    assert bench.step(record(1), record(2))
    assert bench.step(record(3))
    assert bench.step()
    assert bench.log == ["1 2", "to 3", "3", "to 4"]
    assert bench.reason() is None
    assert (bench.metric("tallystream_ship_points_total"), bench.sink.setups) == (3, 1)


def test_positions_are_committed_once_a_second_and_at_the_end(bench: Bench) -> None:
    """Only those after what is written."""
    assert bench.step(record(1))
    bench.now_s -= 0.5
    assert bench.step(record(2))
    bench.sink.errors = [ConfigError("INFLUXDB_BUCKET", "x", "create it")]
    with pytest.raises(ConfigError):
        bench.step(record(3))
    bench.shipper.close()
    assert bench.log == ["1", "to 2", "2", "to 3!", "closed"]


def test_a_shipper_goes_on_at_the_offsets_of_the_group(bench: Bench) -> None:
    """Each time that it gets the lease: another one may have shipped more meanwhile."""
    bench.lease.offset = 5
    assert bench.step()
    assert bench.tail.begun == [{AGG: 5}]
    bench.lease.offset = 9
    bench.lease.pass_on()
    assert bench.step(record(9))
    assert bench.tail.begun == [{AGG: 5}, {AGG: 9}]
    assert bench.log == ["9", "to 10"]


def test_the_beginning_of_a_topic_that_was_created_again_is_committed(bench: Bench) -> None:
    """An offset of the old topic may be committed already. At first there is nothing to replace."""
    bench.tail.restarted({AGG: 0})
    assert bench.log == []
    assert bench.step(record(7))
    bench.tail.restarted({AGG: 0})
    assert bench.log == ["7", "to 8", "to 0!"]


def test_nothing_is_committed_and_nothing_is_read_while_the_store_is_unavailable(bench: Bench) -> None:
    """The same points are written when it is available again."""
    reasons: list[tuple[str | None, float]] = []
    bench.sink.errors = [SinkUnavailableError("the store is away.")] * 3

    def waiting(seconds: float) -> None:
        reasons.append((bench.reason(), bench.metric("tallystream_ship_store_unavailable")))
        assert bench.log == []
        bench.now_s += seconds

    bench.lease.on_check = waiting
    for error in bench.sink.errors:
        error.retry_after_s = 0.1
    assert bench.step(record(1), record(2))
    assert reasons == [("waiting for the store", 1)] * 3
    assert bench.log == ["1 2", "to 3"]


def test_pauses_double_up_to_a_limit(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Each is random, in the upper half of its range. The begin and the end of the outage are logged once."""
    bench.sink.errors = [SinkUnavailableError("the store is away.")] * 12
    with caplog.at_level("INFO"):
        assert bench.step(record(1))
    assert bench.drawn[:4] == [(0.1, 0.2), (0.2, 0.4), (0.4, 0.8), (0.8, 1.6)]
    assert bench.drawn[-1] == (7.5, 15.0)
    shipped = [one.levelname for one in caplog.records if one.name == module.__name__]
    assert shipped == ["WARNING", "INFO"]


def test_what_waited_for_the_store_is_dropped_if_another_shipper_takes_over(bench: Bench) -> None:
    """The other one writes it, and later points. An older point must not follow them."""
    for happens in (bench.lease.lose, bench.lease.pass_on):
        bench.sink.errors = [SinkUnavailableError("the store is away.", retry_after_s=1.0)]
        bench.lease.on_check = lambda _, happens=happens: happens()  # type: ignore[misc]
        assert not bench.step(record(1))
        bench.lease.on_check = lambda _: None
        bench.lease.held = True
    assert bench.log == []
    bench.lease.held = False
    assert not bench.step()
    assert bench.reason() == "standing by"
    assert bench.health.status.unhealthy_reason() is None
    bench.lease.pass_on()
    assert bench.step(record(5))
    assert bench.log == ["5", "to 6"]


def test_a_rejected_point_is_counted_once_however_often_it_is_written(bench: Bench) -> None:
    """It is written again while its dead letter can't be sent. Health names the topic then, not the store."""
    reasons: list[tuple[str | None, float]] = []
    bench.letters.failures = 5
    send = bench.letters.send

    def sending(points: list[Refused]) -> None:
        reasons.append((bench.health.status.waiting_for, bench.metric("tallystream_ship_store_unavailable")))
        send(points)

    bench.letters.send = sending  # type: ignore[method-assign]
    assert bench.step(record(1, count=666))
    assert bench.letters.sent == [1] * 6
    assert set(reasons[1:]) == {("metrics-dead", 0)}
    assert bench.metric("tallystream_ship_rejected_total") == 1
    assert bench.log[-1] == "to 2"


def test_a_shipper_whose_brokers_do_not_answer_is_not_ready(bench: Bench) -> None:
    """It goes on when they do. For half a minute, this is no reason."""
    assert bench.step()
    bench.now_s += 28
    assert bench.step(answers=False)
    bench.now_s += 1
    assert not bench.step(answers=False)
    assert bench.reason() == "waiting for the brokers"
    assert bench.step()
    assert bench.reason() is None


def test_what_is_left_of_many_points_is_dropped_if_another_shipper_takes_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a pause of this process in a long write. An older point must not follow those of the other one."""
    monkeypatch.setattr(module, "MAX_POINTS", 2)
    bench.lease.on_check = lambda _: bench.lease.pass_on()
    assert not bench.step(*map(record, range(5)))
    assert bench.log == ["0 1"]


def test_a_stop_is_not_delayed_by_many_points(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of the rows of many instances may have more than a store takes at once, so it is written in pieces.

    Nothing is committed before the last one, and nothing during an outage: the next start writes them again.
    """
    monkeypatch.setattr(module, "MAX_POINTS", 2)
    assert bench.step(*map(record, range(5)))
    bench.stop.set()
    assert not bench.step(*map(record, range(5, 10)))
    assert bench.log == ["0 1", "2 3", "4", "to 5", "5 6"]
    bench.sink.errors = [SinkUnavailableError("the store is away.")] * 9
    assert not bench.step(record(5))
    assert len(bench.log) == 5


def test_a_store_without_points_to_write_is_waited_for(bench: Bench) -> None:
    """A shipper is ready when it knows that it can write, also after it stood by. Meanwhile it is alive."""
    setup, errors = bench.sink.setup, [SinkUnavailableError("the store is away.", retry_after_s=0.1)]
    reasons = []

    def waiting(seconds: float) -> None:
        reasons.append(bench.reason())
        bench.now_s += seconds

    bench.lease.on_check = waiting

    def failing() -> None:
        setup()
        if errors:
            raise errors.pop()

    bench.sink.setup = failing  # type: ignore[method-assign]
    bench.lease.held = False
    assert not bench.step()
    bench.lease.pass_on()
    assert bench.step()
    assert (bench.sink.setups, reasons) == (2, ["standing by", "waiting for the store"])
