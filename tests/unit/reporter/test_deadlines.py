"""`stop()` and `report_now()` return by their deadline."""

from __future__ import annotations

import math
import socket
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from support.reporters import BENCHES
from support.scripted_producer import KafkaBench
from support.wait import wait_until
from tallystream import GraphiteReporter, InfluxReporter, MetricRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tallystream.reporters.scheduled import ScheduledReporter

CALLS: dict[str, Callable[[ScheduledReporter, float], bool]] = {
    "stop": lambda reporter, timeout: reporter.stop(timeout),
    "report_now": lambda reporter, timeout: reporter.report_now(timeout),
}


def to_graphite(registry: MetricRegistry, port: int) -> ScheduledReporter:
    return GraphiteReporter(registry, instance="i", host="127.0.0.1", port=port)


def to_influx(registry: MetricRegistry, port: int) -> ScheduledReporter:
    return InfluxReporter(registry, instance="i", url=f"http://127.0.0.1:{port}", token="t", org="o", bucket="b")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("make", [to_graphite, to_influx])
def test_a_server_that_does_not_respond_delays_no_call(
    make: Callable[[MetricRegistry, int], ScheduledReporter], call: str
) -> None:
    """The call returns False at its deadline, before the socket's timeout of 5 s."""
    registry = MetricRegistry("app")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        reporter = make(registry, server.getsockname()[1])
        assert not reporter.report_now(), "nothing listens yet"
        server.listen()
        assert not CALLS[call](reporter, 0.2)
        assert reporter.failures == 1
    wait_until(lambda: reporter.failures == 2, 10, "the report has failed, for the server is closed")


@pytest.fixture(params=[*BENCHES, "kafka"])
def reporter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ScheduledReporter]:
    if request.param == "kafka":
        yield KafkaBench().reporter
    else:
        bench = BENCHES[request.param](tmp_path)
        yield bench.make(MetricRegistry("app"))
        bench.close()


@pytest.mark.parametrize("call", CALLS)
def test_a_gauge_that_does_not_return_delays_no_call(reporter: ScheduledReporter, call: str) -> None:
    """The call returns False at its deadline while a gauge's function runs; the next call makes a report."""
    assert reporter.report_now()
    resume, has_ended = Event(), Event()

    def slow() -> float:
        resume.wait(2)
        has_ended.set()
        return 1.0

    reporter.registry.gauge("slow", slow)
    assert not CALLS[call](reporter, 0.1)
    assert not has_ended.is_set()
    resume.set()
    assert CALLS[call](reporter, 10)


@pytest.mark.parametrize("timeout", [math.inf, 1e300, 1e10])
def test_a_call_may_wait_forever(reporter: ScheduledReporter, timeout: float) -> None:
    """A timeout beyond what a lock accepts is no error."""
    assert reporter.report_now(timeout)
    assert reporter.stop(timeout)
    reporter.start()
    assert reporter.is_running
    assert reporter.stop(timeout)
    assert not reporter.is_running


def test_the_last_report_is_made_if_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 and later start no threads at exit: the calling thread makes the last report."""

    def refuse(_: Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    bench = KafkaBench()
    assert bench.reporter.report_now()
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", refuse)
        assert bench.reporter.stop()
    assert bench.snapshots[-1].final
