"""The output of the reporters, and their start and stop, compared with pyformance."""

from __future__ import annotations

import io
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from support.pyformances import Clock, both, real
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable


def filled(library: Any, clock: Clock) -> Any:
    """Return a registry with metrics of all types."""
    registry = library.MetricsRegistry(clock)
    for power in range(10):
        registry.histogram("hist").add(2**power)
    registry.gauge("gcb", lambda: 123)
    registry.gauge("gsimple").set_value(42)
    registry.meter("m1").mark()
    with registry.timer("t1").time():
        registry.counter("c1").inc()
        registry.counter("counter-2").dec()
        clock.add(1)
    return registry


def same(program: Callable[[Any, Clock], Any]) -> Any:
    """Return the result of the program, which must be equal with pyformance and Tallystream."""
    theirs, mine = both(program)
    assert mine == theirs
    return mine


def test_console() -> None:
    """Equal texts, with the clock's time and with a given one."""

    def program(library: Any, clock: Clock) -> str:
        stream = io.StringIO()
        registry = filled(library, clock)
        reporter = library.reporters.ConsoleReporter(registry, 1, stream, clock)
        reporter.report_now()
        reporter.report_now(registry=library.MetricsRegistry(), timestamp=1_000_000_000)
        library.reporters.ConsoleReporter(registry=registry, clock=clock, stream=stream).report_now()
        return stream.getvalue()

    assert "\nhist:\n                 avg = 102.3\n" in same(program)


class Socket:
    """A fake socket that stores what is sent."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def make(self, *arguments: Any) -> Socket:
        """Return itself, as a factory of sockets."""
        self.calls.append(arguments)
        return self

    def connect(self, where: Any) -> None:
        """Keep it."""
        self.calls.append(where)

    def sendall(self, data: bytes) -> None:
        """Keep it."""
        self.calls.append(data)

    def close(self) -> None:
        """Keep it."""
        self.calls.append("closed")


def test_carbon_plaintext() -> None:
    """Equal lines to the same address."""

    def program(library: Any, clock: Clock) -> list[Any]:
        fake = Socket()
        reporter = library.reporters.CarbonReporter(filled(library, clock), 1, "app.", "carbon", 2013, fake.make, clock)
        reporter.report_now()
        reporter.report_now(timestamp=1_000_000_000)
        return fake.calls

    assert b"app.c1.count 1 1700000001\n" in same(program)[2]


class Influx(ThreadingHTTPServer):
    """A fake InfluxDB with two endpoints, which stores the requests."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.status = 204
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                server.asked.append((self.path, self.headers.get("Authorization"), body.decode()))
                self.send_response(server.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST  # noqa: N815 - the name is the standard library's

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


def test_influx() -> None:
    """Equal points with equal credentials to the same database, which is created once."""

    def program(library: Any, clock: Clock) -> list[Any]:
        with Influx() as server:
            reporter = library.reporters.InfluxReporter(
                filled(library, clock),
                prefix="app",
                database="d",
                username="u",
                password="p",
                port=server.server_address[1],
                autocreate_database=True,
                clock=clock,
            )
            reporter.registry.gauge("text").set_value("up")
            reporter.report_now()
            reporter.report_now(timestamp=1_000_000_000)
            server.shutdown()
            paths = [path.partition("?")[0] for path, _, _ in server.asked]
            return [paths, server.asked[1:], server.asked[0][1]]

    paths, (first, _), _ = same(program)
    assert paths == ["/query", "/write", "/write"]
    assert first[0] == "/write?db=d&precision=s"
    assert "app.c1 count=1 1700000001\n" in first[2]
    assert first[2].endswith('app.text value="up" 1700000001')


def test_starting_and_stopping() -> None:
    """A base class that can't report, repeated reports, the results of start(), and the global registry."""

    def program(library: Any, clock: Clock) -> list[Any]:
        reported = threading.Semaphore(0)

        base = real.reporters.reporter.Reporter if library is real else library.reporters.Reporter

        class Counting(base):  # type: ignore[misc,valid-type]
            def report_now(self, registry: Any = None, timestamp: Any = None) -> None:  # noqa: ARG002 - the loop gives none
                assert registry is self.registry
                reported.release()

        with pytest.raises(NotImplementedError):
            base().report_now()
        reporter = Counting(reporting_interval=0.01, clock=clock)
        assert reporter.registry is library.global_registry()
        seen = [reporter.start()]
        wait_until(lambda: reported.acquire(blocking=False), 10, "a first report")
        seen.append(reporter.start())
        wait_until(lambda: reported.acquire(blocking=False), 10, "a second report")
        seen += [reporter.stop(), reporter.start(), reporter.reporting_interval]
        reporter._loop_thread.join(10)
        return [*seen, reporter._loop_thread.daemon, reporter._loop_thread.is_alive(), reporter.start()]

    assert same(program) == [True, False, None, False, 0.01, True, False, False]
