"""The reporter to Kafka, where it needs no broker: a scripted producer stands in for librdkafka's verdicts alone."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tallystream.reporter import ConfigError, KafkaReporter, MetricRegistry
from tallystream.reporter._deadline import Deadline
from tallystream.reporter.record import Counter, Gauge, Histogram, Position, Snapshot, decode, encode
from tallystream.reporter.testing import ManualClock, assert_count, find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Message:
    """A delivered record."""

    def __init__(self, append_ms: int) -> None:
        self._append_ms = append_ms

    def timestamp(self) -> tuple[int, int]:
        """Return log append time."""
        return 2, self._append_ms


@dataclass
class Metadata:
    """The answer to list_topics()."""

    cluster_id: str | None


class ScriptedProducer:
    """Keeps what it is given; `verdicts` are served by poll(), one each: True delivers, an error fails, None waits.

    Its cluster has the ID `cluster`; without one, no broker can be reached.
    """

    def __init__(self, clock: ManualClock, cluster: str | None = "c-1") -> None:
        self.clock, self.cluster = clock, cluster
        self.taken: list[Snapshot] = []
        self.keys: set[bytes] = set()
        self.verdicts: list[bool | KafkaError | None] = []
        self.refuse: Exception | None = None
        self.purged = 0
        self._waiting: list[Callable[[Any, Any], None]] = []

    def produce(self, _: str, *, key: bytes, value: bytes, on_delivery: Callable[[Any, Any], None]) -> None:
        """Take a record, or refuse it."""
        if self.refuse is not None:
            raise self.refuse
        self.taken.append(decode(value))
        self.keys.add(key)
        self._waiting.append(on_delivery)

    def poll(self, seconds: float) -> None:
        """Serve one verdict, or let the time pass."""
        verdict = self.verdicts.pop(0) if self._waiting and self.verdicts else None
        if verdict is None:
            self.clock.advance(seconds)
            return
        done = self._waiting.pop(0)
        done(None if verdict is True else verdict, Message(self.clock.now().wall_ms))

    def list_topics(self, _: str, *, timeout: float) -> Metadata:
        """Tell the cluster's ID, or let the time pass."""
        if self.cluster is None:
            self.clock.advance(timeout)
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return Metadata(self.cluster)

    def purge(self, *, blocking: bool) -> None:
        """Fail everything that is waiting, at the next flush."""
        assert not blocking
        self.purged += 1

    def flush(self, _: float) -> int:
        """Serve the purge."""
        while self._waiting:
            self._waiting.pop(0)(KafkaError(KafkaError._PURGE_QUEUE), None)
        return 0


class Bench:
    """A registry with one counter, a reporter whose producers are scripted, and the clock of both."""

    def __init__(self, **arguments: Any) -> None:
        self.clock = ManualClock()
        self.registry = MetricRegistry("app", clock=self.clock)
        self.counter = self.registry.counter("c")
        self.producers: list[ScriptedProducer] = []
        self.errors: list[Callable[[KafkaError], None]] = []
        self.clusters: dict[str, str | None] = {}
        self.reporter = self.make(**arguments)

    def make(self, **arguments: Any) -> KafkaReporter:
        """Make a reporter of the registry."""
        wanted: dict[str, Any] = {"own_metrics": False, "bootstrap_servers": "b:9092", "instance": "i-1", **arguments}
        return KafkaReporter(self.registry, producer=self._producer, **wanted)

    def _producer(self, options: Mapping[str, Any], on_error: Callable[[KafkaError], None]) -> Any:
        self.errors.append(on_error)
        self.producers.append(ScriptedProducer(self.clock, self.clusters.get(options["bootstrap.servers"], "c-1")))
        self.producers[-1].verdicts = [True] * 100
        return self.producers[-1]

    @property
    def taken(self) -> list[Snapshot]:
        """Every snapshot handed over, to whichever producer."""
        return [snapshot for producer in self.producers for snapshot in producer.taken]


def counts(snapshots: list[Snapshot]) -> list[int]:
    return [metric.count for s in snapshots for metric in s.metrics if isinstance(metric, Counter)]


def test_report_now_returns_when_it_was_acknowledged() -> None:
    """The values at the call are handed over under the instance's key, and True says that they arrived."""
    bench = Bench(interval=2.5)
    bench.counter.inc(3)
    assert bench.reporter.report_now()
    [snapshot] = bench.taken
    assert counts([snapshot]) == [3]
    assert (snapshot.seq, snapshot.every_ms, snapshot.final, snapshot.app) == (1, 2500, False, "app")
    assert bench.producers[0].keys == {b"i-1"}
    assert bench.reporter.sent == 1


def test_records_have_this_instances_view_where_it_is_wanted() -> None:
    """What merges is always there; mean, deviation and quantiles of the sample only with `own_views`."""
    for arguments, p50 in (({}, None), ({"own_views": True}, 2.0)):
        bench = Bench(**arguments)
        bench.registry.histogram("h").update(2.0)
        assert bench.reporter.report_now()
        [found] = [metric for metric in bench.taken[0].metrics if isinstance(metric, Histogram)]
        assert (found.count, found.sum, found.max, found.p50, found.mean) == (1, 2.0, 2.0, p50, p50)
        assert found.sketch


def test_report_now_gives_up_in_time_and_the_newest_values_follow() -> None:
    """A broker that is silent makes it return False after `timeout`; when it is back, the newest values go out."""
    bench = Bench()
    assert bench.reporter.report_now()
    bench.producers[0].verdicts = []
    begin = bench.clock.monotonic()
    bench.counter.inc(1)
    assert not bench.reporter.report_now(timeout=3)
    assert bench.clock.monotonic() - begin == pytest.approx(3)
    for _ in range(5):
        bench.counter.inc(1)
        assert not bench.reporter.report_now(timeout=1)
    assert counts(bench.taken) == [0, 1]
    bench.producers[0].verdicts = [True] * 10
    assert bench.reporter.report_now()
    assert counts(bench.taken) == [0, 1, 6]


def test_a_failed_delivery_is_told_counted_and_made_good() -> None:
    """report_now() returns False, the failure is counted with its reason, and the next snapshot has it all."""
    bench = Bench()
    bench.counter.inc()
    assert bench.reporter.report_now()
    bench.producers[0].verdicts = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), *[True] * 10]
    bench.counter.inc()
    assert not bench.reporter.report_now()
    assert bench.reporter.failures == 1
    assert bench.reporter.last_error is not None
    assert "authorization" in bench.reporter.last_error
    assert bench.reporter.report_now()
    assert counts(bench.taken) == [1, 2, 2]


def test_a_record_that_is_not_even_taken_is_an_error_that_is_seen() -> None:
    """What produce() raises becomes False, a count and a message; the reporter goes on."""
    bench = Bench()
    assert bench.reporter.report_now()
    bench.producers[0].refuse = BufferError("queue full")
    assert not bench.reporter.report_now()
    assert bench.reporter.last_error == "a snapshot for 'metrics' can't be sent: queue full"
    bench.producers[0].refuse = None
    assert bench.reporter.report_now()


def test_a_fatal_error_gets_a_new_producer_and_the_life_goes_on() -> None:
    """After librdkafka's fatal error the next report uses a new producer, in the same life with the next seq."""
    bench = Bench()
    assert bench.reporter.report_now()
    fatal = KafkaError(KafkaError._FATAL, "fenced", True)
    bench.producers[0].verdicts = [fatal]
    assert not bench.reporter.report_now()
    assert bench.reporter.report_now()
    assert len(bench.producers) == 2
    assert [(s.life, s.seq) for s in bench.taken] == [(bench.taken[0].life, seq) for seq in (1, 2, 3)]


def test_stop_sends_a_final_record_and_a_new_start_counts_on() -> None:
    """The last record says final; a second life, even of another reporter, publishes only what came since."""
    bench = Bench()
    bench.counter.inc(5)
    with bench.reporter:
        bench.counter.inc(1)
    assert bench.taken[-1].final
    assert counts(bench.taken)[-1] == 6
    bench.counter.inc(2)
    other = bench.make()
    assert other.report_now()
    assert counts(bench.taken)[-1] == 2
    assert bench.taken[-1].life != bench.taken[-2].life
    assert other.stop()
    assert other.stop()


def test_stop_without_an_answer_purges_and_the_same_life_goes_on() -> None:
    """A stop that nobody acknowledges returns False in time; the next start keeps the life, for its fate is unknown."""
    bench = Bench()
    assert bench.reporter.report_now()
    bench.producers[0].verdicts = []
    bench.counter.inc(4)
    assert not bench.reporter.stop(timeout=2)
    assert bench.producers[0].purged == 1
    assert bench.reporter.failures == 0
    bench.counter.inc(1)
    assert bench.reporter.report_now()
    assert bench.taken[-1].life == bench.taken[0].life
    assert bench.taken[-1].seq == 3
    assert counts(bench.taken)[-1] == 5


class Stuck(ScriptedProducer):
    """Delivers nothing, and does not even serve a purge: each flush takes all the time that it is given."""

    def flush(self, seconds: float) -> int:
        """Let the time pass."""
        self.clock.advance(seconds)
        return 1


def test_a_producer_that_gives_nothing_up_is_left_to_itself() -> None:
    """stop() takes no longer than it may, for the last report and the end of the producer together.

    The record counts as one of unknown fate.
    """
    clock = ManualClock()
    registry = MetricRegistry("app", clock=clock)
    registry.counter("c").inc(4)
    producers: list[ScriptedProducer] = [Stuck(clock), ScriptedProducer(clock)]
    producers[1].verdicts = [True]
    waiting: Iterator[Any] = iter(producers)
    reporter = KafkaReporter(
        registry,
        bootstrap_servers="b:1",
        instance="i",
        own_metrics=False,
        producer=lambda *_: next(waiting),
    )
    assert not reporter.report_now(timeout=1)
    begin = clock.monotonic()
    assert not reporter.stop(timeout=0.2)
    assert clock.monotonic() - begin == pytest.approx(0.2)
    registry.counter("c").inc(1)
    assert reporter.report_now()
    [first, again] = [producer.taken[-1] for producer in producers]
    assert counts([first, again]) == [4, 5]
    assert (again.life, again.seq) == (first.life, first.seq + 1)


REFUSED = KafkaError(KafkaError._TRANSPORT, "Connection refused")
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


def test_a_broker_that_can_not_be_reached_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """After ten seconds without an acknowledgement: a line with the address and the reason, a failure, `connected`."""
    caplog.set_level(logging.INFO, "tallystream.reporter")
    bench = Bench(interval=1.0)
    reporter = bench.reporter
    reporter._ready()
    bench.producers[0].verdicts = []

    def seconds(number: int) -> list[str]:
        caplog.clear()
        for _ in range(number):
            bench.clock.advance(1)
            reporter._report()
        return [record.getMessage() for record in caplog.records if record.name == "tallystream.reporter"]

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
    reporter.stop(timeout=0)
    reporter._open()
    bench.producers[1].verdicts = []
    assert seconds(9) == []


def test_the_warning_waits_for_three_intervals(caplog: pytest.LogCaptureFixture) -> None:
    """A reporter of every minute says so after three of them."""
    bench = Bench(interval=60.0)
    bench.reporter._open()
    bench.producers[0].verdicts = []
    bench.reporter._report()
    for seconds, failures in ((179, 0), (2, 1)):
        bench.clock.advance(seconds)
        bench.reporter._attend()
        assert bench.reporter.failures == failures
    assert bench.reporter.last_error == "no metrics have arrived at b:9092 for 180 s: the broker does not answer"


def test_whether_it_is_connected() -> None:
    """Not before the first acknowledgement, not after an error of librdkafka until the next one, not after the end."""
    bench = Bench()
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
    bench = Bench()
    bench.clusters["b:9092"] = "c-1" if reached else None
    if reached:
        assert bench.reporter.report_now()
    bench.reporter._ready()
    bench.producers[0].verdicts = []
    for error in (REFUSED, DOWN):
        bench.errors[0](error)
    bench.counter.inc()
    bench.reporter._report()
    begin = bench.clock.monotonic()
    assert not bench.reporter.stop()
    assert bench.clock.monotonic() - begin == pytest.approx(waited)
    said = "nothing of this process was reported: no metrics have arrived at b:9092: Connection refused"
    assert (said in caplog.messages) is not reached


def test_the_end_waits_for_a_first_connection() -> None:
    """A process that ends before its first connection is made, or failed, waits for it as long as `stop()` may."""
    bench = Bench()
    bench.reporter._ready()
    bench.producers[0].verdicts = [None] * 30 + [True] * 10
    assert bench.reporter.stop()
    assert bench.clock.monotonic() == pytest.approx(3)


def test_the_end_waits_for_a_broker_that_was_reached_after_a_failed_connection() -> None:
    """A connection refused before the broker answered (at `localhost`'s other address) shortens no last report."""
    bench = Bench()
    bench.reporter._ready()
    for error in (REFUSED, DOWN):
        bench.errors[0](error)
    bench.counter.inc()
    bench.producers[0].verdicts = [None] * 30 + [True]
    assert bench.reporter.stop()
    assert bench.clock.monotonic() == pytest.approx(3)
    assert counts(bench.taken) == [1]


class Taken:
    """A lock that another thread does not give back; it notes for how long it was waited for."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.waited = clock, list[float]()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Let the time pass."""
        assert blocking
        assert timeout >= 0
        self.clock.advance(timeout)
        self.waited.append(timeout)
        return False


@pytest.mark.parametrize("lock", ["_reporting", "_life_cycle"])
def test_stop_waits_for_other_threads_no_longer_than_it_may(lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a report, a start or another stop() does not end, it returns False in time; the next one makes the end."""
    bench = Bench()
    assert bench.reporter.report_now()
    taken = Taken(bench.clock)
    with monkeypatch.context() as patched:
        patched.setattr(bench.reporter, lock, taken)
        assert not bench.reporter.stop(timeout=0.2)
    assert sum(taken.waited) == pytest.approx(0.2)
    assert bench.reporter.stop()
    assert bench.taken[-1].final


def test_a_stop_that_never_reported_is_quiet() -> None:
    """Stopping what was never started makes no producer and says that nothing is missing."""
    bench = Bench()
    assert bench.reporter.stop()
    assert bench.producers == []


def test_the_turns_of_the_thread_keep_one_record_under_way() -> None:
    """While a record waits, due reports fall out; as soon as it lands the newest values are handed over, once."""
    bench = Bench(interval=1.0)
    reporter = bench.reporter
    reporter._open()
    producer = bench.producers[0]
    producer.verdicts = []
    bench.counter.inc()
    assert reporter._report()
    for _ in range(5):
        bench.counter.inc()
        assert reporter._report()
    assert counts(bench.taken) == [1]
    producer.verdicts = [True, None]
    assert reporter._attend()
    assert counts(bench.taken) == [1, 6]
    producer.verdicts = [True]
    assert not reporter._attend()
    assert counts(bench.taken) == [1, 6]


def test_a_report_that_is_owed_over_a_fork_goes_out_by_a_new_producer() -> None:
    """A fork closes the producer that lost its broker; what came due before goes out after it, and is no failure."""
    bench = Bench(interval=1.0)
    reporter = bench.reporter
    reporter._ready()
    bench.producers[0].verdicts = []
    assert reporter._report()
    bench.counter.inc()
    assert reporter._report()
    [go_on] = reporter.before_fork(Deadline(0.2, bench.clock.monotonic))
    go_on()
    reporter._attend()
    assert (reporter.failures, reporter.last_error) == (0, None)
    assert counts(bench.producers[1].taken) == [1]


def test_the_thread_reports_by_itself_and_survives_a_failure() -> None:
    """A real thread with a short interval: a gauge that breaks the producer once does not end the reporting."""
    registry = MetricRegistry("app")
    arrived = threading.Semaphore(0)
    producers = []

    class Producer(ScriptedProducer):
        def produce(self, topic: str, *, key: bytes, value: bytes, on_delivery: Callable[[Any, Any], None]) -> None:
            if len(producers) == 1 and not self.taken:
                producers.append("refused once")
                raise BufferError("once")
            super().produce(topic, key=key, value=value, on_delivery=on_delivery)
            arrived.release()

    def make(options: Mapping[str, Any], on_error: object) -> Any:
        producers.append("made")
        producer = Producer(ManualClock(wall_ms=time.time_ns() // 1_000_000))
        producer.verdicts = [True] * 100
        return producer

    reporter = KafkaReporter(registry, bootstrap_servers="b:1", instance="i", interval=0.01, producer=make)
    with reporter:
        for _ in range(3):
            assert arrived.acquire(timeout=10)
    assert reporter.failures == 1
    assert producers == ["made", "refused once"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"interval": 0.001}, "interval"),
        ({"interval": 4000}, "interval"),
        ({"instance": ""}, "instance"),
        ({"instance": "ü" * 600}, "instance"),
        ({"instance": "a\0"}, "instance"),
        ({"bootstrap_servers": " "}, "bootstrap_servers"),
        ({"options": {"acks": "1"}}, "acks"),
        ({"options": {"request.required.acks": 0}}, "request.required.acks"),
        ({"options": {"enable.idempotence": False}}, "enable.idempotence"),
        ({"options": {"delivery.timeout.ms": 5}}, "delivery.timeout.ms"),
        ({"options": {"bootstrap.servers": "x"}}, "bootstrap.servers"),
    ],
)
def test_bad_arguments_are_one_sentence_that_names_them(arguments: dict[str, Any], field: str) -> None:
    """Each is refused when the reporter is made, which leaves no metric behind."""
    bench = Bench()
    with pytest.raises(ConfigError) as caught:
        bench.make(own_metrics=True, **arguments)
    assert caught.value.field == field
    assert str(caught.value).startswith(field)
    assert bench.registry.metrics() == [bench.counter]


def test_what_librdkafka_refuses_is_told_by_start_without_the_values() -> None:
    """An unknown option is named; no value, which may be a password, is in the message."""
    registry = MetricRegistry("app")
    options = {"no.such.option": "x", "sasl.password": "hush"}
    reporter = KafkaReporter(registry, bootstrap_servers="b:1", instance="i", options=options)
    with pytest.raises(ConfigError, match=r'No such configuration property: "no\.such\.option"') as caught:
        reporter.start()
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(reporter)


def test_a_registry_has_one_reporter_and_one_instance_at_a_destination() -> None:
    """A second reporter to the same topic while the first runs, or under another instance ID, would count twice."""
    bench = Bench()
    assert bench.reporter.report_now()
    with pytest.raises(ConfigError, match="another reporter reports it to 'metrics'"):
        bench.make().report_now()
    assert bench.make(topic="other").report_now()
    assert bench.reporter.stop()
    with pytest.raises(ConfigError, match="is reported to 'metrics' as 'i-1' already"):
        bench.make(instance="i-2").report_now()
    assert bench.make().report_now()


@pytest.mark.parametrize("in_order", [True, False])
def test_a_registry_that_is_renamed_gets_a_new_life_of_the_new_app(*, in_order: bool) -> None:
    """A life belongs to one app, ended in order or not; what the old app has is not published again."""
    bench = Bench()
    bench.counter.inc(5)
    assert bench.reporter.report_now()
    bench.producers[0].verdicts = [True] * in_order
    assert bench.reporter.stop() is in_order
    bench.registry.app = "renamed"
    bench.counter.inc(2)
    other = bench.make()
    assert other.report_now()
    assert [s.app for s in bench.taken] == ["app", "app", "renamed"]
    assert bench.taken[-1].life != bench.taken[0].life
    assert counts(bench.taken) == [5, 5, 2]
    bench.registry.app = "again"  # while it is reported
    assert other.report_now()
    assert (bench.taken[-1].app, counts(bench.taken)[-1]) == ("again", 0)


def test_positions_of_a_renamed_registry_begin_where_the_old_app_ended() -> None:
    """What the new app counted is what its positions cover: nothing is processed twice, also in its next life."""
    bench = Bench()
    position = bench.registry.position("t", 0)

    def process(start: int, end: int) -> None:
        bench.counter.inc(end - start)
        position.cover(start, end)

    process(0, 100)
    assert bench.reporter.report_now()
    bench.registry.app = "new"
    process(100, 110)
    assert bench.reporter.report_now()
    assert bench.reporter.stop()
    process(110, 115)
    assert bench.reporter.report_now()
    covered = [(m.start, m.position) for s in bench.taken for m in s.metrics if isinstance(m, Position)]
    assert covered == [(0, 100), (100, 110), (100, 110), (100, 115)]
    assert counts(bench.taken) == [100, 10, 10, 5]


def test_a_second_spelling_of_the_broker_is_the_same_destination() -> None:
    """report_now() of a reporter to the same cluster and topic is a ConfigError, and nothing was handed over by it."""
    bench = Bench()
    bench.counter.inc(5)
    assert bench.reporter.report_now()
    other = bench.make(bootstrap_servers="other:9092")
    with pytest.raises(ConfigError, match=r"another reporter reports it to 'metrics' of the same cluster \(b:9092\)"):
        other.report_now()
    assert other.stop()
    assert counts(bench.taken) == [5]
    bench.counter.inc()
    assert bench.reporter.report_now()
    assert counts(bench.taken) == [5, 6]
    with pytest.raises(ConfigError, match="is reported to 'metrics' as 'i-1' already"):
        bench.make(bootstrap_servers="other:9092", instance="i-2").report_now()


def test_a_running_reporter_of_a_second_spelling_stops_with_one_error(caplog: pytest.LogCaptureFixture) -> None:
    """Its thread ends with one line in the log, it sends nothing, and it can be started when the other has stopped."""
    bench = Bench(interval=0.01)
    bench.counter.inc(5)
    assert bench.reporter.report_now()
    other = bench.make(bootstrap_servers="other:9092", interval=0.01).start()
    assert other._thread is not None
    bench.clock.advance(1)
    other._thread._thread.join(10)
    assert not other._thread.is_alive()
    assert not other._link.is_open
    assert other.failures == 1
    assert caplog.text.count("the reporter has stopped: registry: 'app' can't be used; another reporter") == 1
    assert counts(bench.taken) == [5]
    assert not other.after_fork_in_child()
    assert other.stop()
    assert bench.reporter.stop()
    bench.counter.inc(2)
    with other:
        pass
    assert counts(bench.taken)[-1] == 2


def test_reporters_of_one_registry_to_two_clusters_report_everything_to_both() -> None:
    """The same topic of another cluster is another destination, and an address may lead to another cluster later."""
    bench = Bench()
    bench.clusters["other:9092"] = "c-2"
    other = bench.make(bootstrap_servers="other:9092", instance="i-2")
    bench.counter.inc(3)
    assert bench.reporter.report_now()
    assert other.report_now()
    assert counts(bench.taken) == [3, 3]
    assert other.stop()
    bench.clusters["other:9092"] = "c-3"
    assert other.report_now()
    assert counts(bench.taken)[-1] == 3
    assert other.stop()
    bench.clusters["other:9092"] = "c-2"
    bench.counter.inc(2)
    assert other.report_now()
    assert counts(bench.taken)[-1] == 2


def test_a_later_reporter_of_a_second_spelling_counts_on() -> None:
    """What was acknowledged under the first spelling is not published again."""
    bench = Bench()
    bench.counter.inc(5)
    assert bench.reporter.report_now()
    assert bench.reporter.stop()
    bench.counter.inc(2)
    assert bench.make(bootstrap_servers="other:9092").report_now()
    assert counts(bench.taken) == [5, 5, 2]


def test_nothing_is_handed_over_before_the_cluster_is_known() -> None:
    """Without a broker start() returns, report_now() and stop() give up in time; the first that reaches it reports."""
    bench = Bench(interval=3600)
    bench.clusters["b:9092"] = bench.clusters["other:9092"] = None
    other = bench.make(bootstrap_servers="other:9092")
    for reporter in (bench.reporter, other):
        reporter._open()
        assert reporter._report()
        begin = bench.clock.monotonic()
        assert not reporter.report_now(timeout=3)
        assert bench.clock.monotonic() - begin == pytest.approx(3)
    assert bench.taken == []
    bench.counter.inc(4)
    bench.producers[1].cluster = "c-1"
    assert other._report()
    assert counts(bench.taken) == [4]
    bench.producers[0].cluster = "c-1"
    with pytest.raises(ConfigError, match="another reporter"):
        bench.reporter.report_now()
    assert counts(bench.taken) == [4]


def test_a_broker_that_has_no_cluster_id_is_compared_by_its_address() -> None:
    """As some servers of Kafka's protocol have none: the same text is the same destination."""
    bench = Bench()
    bench.clusters.update({"b:9092": "", "other:9092": ""})
    assert bench.reporter.report_now()
    assert bench.make(bootstrap_servers="other:9092").report_now()
    with pytest.raises(ConfigError, match="another reporter"):
        bench.make().report_now()


def test_the_reporters_own_metrics_are_in_its_registry() -> None:
    """Records and bytes that arrived, failures, how long a report takes and when the last error was."""
    bench = Bench(own_metrics=True)
    assert bench.reporter.report_now()
    bench.producers[0].refuse = BufferError("full")
    assert not bench.reporter.report_now()
    tags = {"reporter": "kafka"}
    assert_count(bench.registry, "tallystream.reporter.sent", 1, tags=tags)
    assert_count(bench.registry, "tallystream.reporter.failed", 1, tags=tags)
    assert_count(bench.registry, "tallystream.reporter.bytes", len(encode(bench.taken[0])), tags=tags)
    assert_count(bench.registry, "tallystream.reporter.duration", 2, tags=tags)
    assert find(bench.registry, "tallystream.reporter.last_error", tags=tags) == Gauge(
        name="tallystream.reporter.last_error", tags=tags, value=1_700_000_000
    )


def test_a_delivery_that_failed_is_decided_by_the_next_acknowledgement() -> None:
    """Within 24 h its life goes on and has everything; after them the next record is refused, and a new life counts on.

    What failed may be in the topic, so it is taken as delivered then; nobody reads the topic to find out.
    """
    bench = Bench()
    bench.counter.inc(110)
    assert bench.reporter.report_now()
    for hours, wanted in ((23, [120]), (50, [140, 10])):
        bench.counter.inc(10)
        bench.producers[0].verdicts = [KafkaError(KafkaError._TIMED_OUT)]
        assert not bench.reporter.report_now()
        sent = len(bench.taken)
        bench.clock.advance(hours * 3600)
        bench.counter.inc(10 * (len(wanted) - 1))
        bench.producers[0].verdicts = [True] * 9
        assert bench.reporter.report_now()
        assert counts(bench.taken[sent:]) == wanted
    assert len({snapshot.life for snapshot in bench.taken}) == 2
    assert bench.reporter.last_error == (
        "a life has ended: its record was appended a day late, or our clock is a day ahead; a new one counts on"
    )
