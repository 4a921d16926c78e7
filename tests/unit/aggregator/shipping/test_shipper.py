"""The loop: write, then commit; outages of the store and the brokers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.shipper import AGG, Bench, ScriptedLease
from tallystream.errors import ConfigError
from tallystream_aggregator.shipping import shipper as module
from tallystream_aggregator.shipping.dead_letters import LettersUnavailableError
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


class Every(Bench):
    """A shipper to a store of every point."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        monkeypatch.setattr(module.log, "filters", [])  # of other tests, the last minute may have the same errors
        self.lease, self.letters = ScriptedLease(self.log), Letters()
        self.lease.on_check = self.sleep
        super().__init__(monkeypatch, ScriptedSink(self.log), self.lease, self.letters)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Every:
    """A shipper to a store of every point."""
    return Every(monkeypatch)


def test_points_are_written_in_order_and_committed_after_that(bench: Every) -> None:
    """Then the shipper is ready."""
    assert bench.reason() == "starting"
    assert bench.step(1, 2)
    assert bench.step(3)
    assert bench.step()
    assert bench.log == ["1 2", "to 2", "3", "to 3"]
    assert bench.reason() is None
    assert (bench.metric("tallystream_ship_points_total"), bench.sink.setups) == (3, 1)


def test_positions_are_committed_once_a_second_and_at_the_end(bench: Every) -> None:
    """Only those after what is written."""
    assert bench.step(1)
    bench.now_s -= 1.5
    assert bench.step(2)
    bench.sink.errors = [ConfigError("INFLUXDB_BUCKET", "x", "create it")]
    with pytest.raises(ConfigError):
        bench.step(3)
    bench.shipper.close()
    assert bench.log == ["1", "to 1", "2", "to 2!", "closed"]


def test_a_shipper_goes_on_at_the_offsets_of_the_group(bench: Every) -> None:
    """Each time that it gets the lease: another one may have shipped more meanwhile."""
    bench.lease.offset = 2
    assert bench.step(0, 1, 2, 3)
    bench.lease.offset = 5
    bench.lease.pass_on()
    assert bench.step(4, 5)
    assert bench.log == ["2 3", "to 4", "5", "to 6"]


def test_the_beginning_of_a_topic_that_was_created_again_is_committed(bench: Every) -> None:
    """An offset of the old topic may be committed already."""
    assert bench.step(7)
    bench.direct.cluster.delete(AGG.topic)
    bench.direct.cluster.create(AGG.topic, 1)
    assert bench.step()
    assert bench.log == ["7", "to 1", "to 0!"]


def test_nothing_is_committed_and_nothing_is_read_while_the_store_is_unavailable(bench: Every) -> None:
    """The same points are written when it is available again."""
    reasons: list[tuple[str | None, float]] = []
    bench.sink.errors = [SinkUnavailableError("the store is away.")] * 3

    def waiting(seconds: float) -> None:
        reasons.append((bench.reason(), bench.metric("tallystream_ship_store_unavailable")))
        assert bench.log == []
        bench.now_s += seconds

    bench.lease.on_check = waiting
    assert bench.step(1, 2)
    assert set(reasons) == {("waiting for the store", 1)}
    assert bench.log == ["1 2", "to 2"]


def test_pauses_double_up_to_a_limit(
    bench: Every, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are at least as long as the store requests. The begin and the end of the outage are logged once."""
    bench.sink.errors = [SinkUnavailableError("the store is away.")] * 8
    bench.sink.errors += [SinkUnavailableError("the store is away.", retry_after_s=60.0)]
    pauses: list[float] = []
    monkeypatch.setattr(bench.shipper, "_pause", pauses.append)
    with caplog.at_level("INFO"):
        assert bench.step(1)
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0, 60.0])
    shipped = [one.levelname for one in caplog.records if one.name == module.__name__]
    assert shipped == ["WARNING", "INFO"]


def test_what_waited_for_the_store_is_dropped_if_another_shipper_takes_over(bench: Every) -> None:
    """The other one writes it, and later points. An older point must not follow them."""
    for happens in (bench.lease.lose, bench.lease.pass_on):
        bench.sink.errors = [SinkUnavailableError("the store is away.", retry_after_s=1.0)]
        bench.lease.on_check = lambda _, happens=happens: happens()  # type: ignore[misc]
        assert not bench.step(1)
        bench.lease.on_check = lambda _: None
        bench.lease.held = True
    assert bench.log == []
    bench.lease.held = False
    assert not bench.step()
    assert bench.reason() == "standing by"
    assert bench.health.status.unhealthy_reason() is None
    bench.lease.offset = 2
    bench.lease.pass_on()
    assert bench.step(5)
    assert bench.log == ["5", "to 3"]


def test_a_rejected_point_is_counted_once_however_often_it_is_written(bench: Every) -> None:
    """It is written again while its dead letter can't be sent. Health names the topic then, not the store."""
    reasons: list[tuple[str | None, float]] = []
    bench.letters.failures = 5
    send = bench.letters.send

    def sending(points: list[Refused]) -> None:
        reasons.append((bench.health.status.waiting_for, bench.metric("tallystream_ship_store_unavailable")))
        send(points)

    bench.letters.send = sending  # type: ignore[method-assign]
    assert bench.step(666)
    assert bench.letters.sent == [1] * 6
    assert set(reasons[1:]) == {("metrics-dead", 0)}
    assert bench.metric("tallystream_ship_rejected_total") == 1
    assert bench.log[-1] == "to 1"


def test_a_shipper_whose_brokers_do_not_answer_is_not_ready(bench: Every) -> None:
    """It goes on when they do. For half a minute, this is no reason."""
    assert bench.step()
    bench.now_s += 27
    assert bench.step(answers=False)
    bench.now_s += 1
    assert not bench.step(answers=False)
    assert bench.reason() == "waiting for the brokers"
    assert bench.step()
    assert bench.reason() is None


def test_what_is_left_of_many_points_is_dropped_if_another_shipper_takes_over(
    bench: Every, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a pause of this process in a long write. An older point must not follow those of the other one."""
    monkeypatch.setattr(module, "MAX_POINTS", 2)
    bench.lease.on_check = lambda _: bench.lease.pass_on()
    assert not bench.step(*range(5))
    assert bench.log == ["0 1"]


def test_a_stop_is_not_delayed_by_many_points(bench: Every, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of the rows of many instances may have more than a store takes at once, so it is written in pieces.

    Nothing is committed before the last one, and nothing during an outage: the next start writes them again.
    """
    monkeypatch.setattr(module, "MAX_POINTS", 2)
    assert bench.step(*range(5))
    bench.stop.set()
    assert not bench.step(*range(5, 10))
    assert bench.log == ["0 1", "2 3", "4", "to 5", "5 6"]
    bench.sink.errors = [SinkUnavailableError("the store is away.")] * 9
    assert not bench.step(5)
    assert len(bench.log) == 5


def test_a_store_without_points_to_write_is_waited_for(bench: Every) -> None:
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

    bench.sink.setup = failing
    bench.lease.held = False
    assert not bench.step()
    bench.lease.pass_on()
    assert bench.step()
    assert (bench.sink.setups, [*dict.fromkeys(reasons)]) == (2, ["standing by", "waiting for the store"])
