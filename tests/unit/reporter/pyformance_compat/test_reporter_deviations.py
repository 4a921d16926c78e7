"""How the reporters differ from pyformance's."""

from __future__ import annotations

import asyncio
import io
import math
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from support.pyformances import Clock, ours
from support.wait import wait_until
from tallystream import ConfigError
from tallystream.pyformance_compat.reporters import (
    CarbonReporter,
    ConsoleReporter,
    InfluxReporter,
    Reporter,
)

HOSTILE = "a b\nforged 99,c=d"


class Failing(Reporter):
    """A reporter whose first report fails; it counts its reports."""

    reports = 0

    def report_now(self, registry: Any = None, timestamp: float | None = None) -> None:  # noqa: ARG002 - it reports nothing
        """Fail, but not always."""
        self.reports += 1
        if self.reports % 2:
            raise OSError("no route to carbon")


def test_a_failed_report_is_seen_and_the_next_one_happens(log: pytest.LogCaptureFixture) -> None:
    """The real pyformance drops failures silently; Tallystream counts and logs each, and continues."""
    reporter = Failing(reporting_interval=0.01)
    reporter.start()
    wait_until(lambda: reporter.reports >= 4, 10, "four reports", poll=0.01)
    reporter.stop()
    assert reporter.failures == (reporter.reports + 1) // 2
    assert "Failing: a report failed; the next one follows" in log.text
    assert "no route to carbon" in log.text


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit])
def test_a_report_that_raises_no_exception_is_a_failed_report(
    error: type[BaseException], log: pytest.LogCaptureFixture
) -> None:
    """In pyformance the thread ends; Tallystream logs it like any other failure, and makes the next report."""

    class Ending(Reporter):
        reports = 0

        def report_now(self, registry: Any = None, timestamp: float | None = None) -> None:  # noqa: ARG002 - it reports nothing
            self.reports += 1
            raise error

    reporter = Ending(reporting_interval=0.01)
    reporter.start()
    wait_until(lambda: reporter.reports >= 3, 10, "three reports", poll=0.01)
    reporter.stop()
    assert reporter.failures == reporter.reports
    assert "Ending: a report failed; the next one follows" in log.text


def test_stopping_makes_a_last_report() -> None:
    """The real pyformance loses what was counted since the last report; stop() reports it and waits."""
    registry, stream = ours.MetricsRegistry(Clock()), io.StringIO()
    reporter = ConsoleReporter(registry, 3600, stream)
    reporter.start()
    wait_until(lambda: "==" in stream.getvalue(), 10, "the first report", poll=0.01)
    registry.counter("late").inc(7)
    reporter.stop()
    assert "late:\n               count = 7\n" in stream.getvalue()
    assert not reporter._loop_thread.is_alive()


def test_stopping_from_within_a_report() -> None:
    """A report that stops its reporter does not wait for itself."""

    class Once(Reporter):
        reports = 0

        def report_now(self, registry: Any = None, timestamp: float | None = None) -> None:  # noqa: ARG002 - it reports nothing
            self.reports += 1
            self.stop()

    reporter = Once(reporting_interval=3600)
    reporter.start()
    reporter._loop_thread.join(10)
    assert (reporter._loop_thread.is_alive(), reporter.failures, reporter.reports) == (False, 0, 2)


@pytest.mark.parametrize("interval", [0, -1])
def test_an_interval_of_zero_is_rejected(interval: float) -> None:
    """In pyformance the thread loops without a pause."""
    with pytest.raises(ConfigError, match=r"reporting_interval: .* use a number of seconds above 0"):
        Reporter(reporting_interval=interval)


def test_the_console_is_the_current_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The real pyformance keeps the standard error of the import, and ignores a timestamp of 0."""
    ConsoleReporter(ours.MetricsRegistry()).report_now(timestamp=0)
    assert capsys.readouterr().err.startswith("== 1970-01-01 00:00:00 ==")


def listening(data: list[bytes], expected: int) -> tuple[int, threading.Thread]:
    """Return a port that accepts `expected` connections, and the thread that stores what arrives."""
    server = socket.create_server(("127.0.0.1", 0))

    def take() -> None:
        with server:
            for _ in range(expected):
                connection, _ = server.accept()
                with connection, connection.makefile("rb") as file:
                    data.append(file.read())

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return server.getsockname()[1], thread


def test_carbon_receives_only_valid_lines() -> None:
    """In pyformance a key can forge lines, and NaN and text are sent."""
    registry, data = ours.MetricsRegistry(Clock()), list[bytes]()
    registry.counter(HOSTILE).inc(5)
    registry.gauge("nan")
    registry.gauge("text").set_value("up")
    port, thread = listening(data, 1)
    CarbonReporter(registry, server="127.0.0.1", port=port, clock=Clock(3)).report_now()
    thread.join(10)
    assert data == [b"a_b_forged_99,c_d.count 5 3\n"]


def test_an_empty_registry_is_not_sent() -> None:
    """An empty registry opens no connection."""
    CarbonReporter(ours.MetricsRegistry(), port=1).report_now()


def test_influx_receives_only_valid_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pyformance a key can forge points, and one NaN causes the complete report to be rejected."""
    registry = ours.MetricsRegistry(Clock())
    for key in (HOSTILE, "back\\", "#comment", ""):
        registry.counter(key).inc(5)
    registry.gauge("nan")
    registry.gauge("infinite").set_value(math.inf)
    registry.gauge("text").set_value('a"b\\')
    posted: list[str] = []
    reporter = InfluxReporter(registry, clock=Clock(3))
    monkeypatch.setattr(reporter, "_post", lambda *arguments: posted.append(arguments[2].decode()))
    reporter.report_now()
    assert posted[0].split("\n") == [
        r"a\ b\nforged\ 99\,c=d count=5 3",
        r"back\_ count=5 3",
        "_#comment count=5 3",
        "_ count=5 3",
        r'text value="a\"b\\" 3',
    ]


@pytest.mark.parametrize("answer", [b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 5\r\n\r\nwho?!", b"nonsense", b""])
def test_an_error_of_influxdb_is_logged(answer: bytes, log: pytest.LogCaptureFixture) -> None:
    """The log and `failures` show InfluxDB's response, or that there is none, without the password."""
    registry = ours.MetricsRegistry(Clock())
    registry.counter("c").inc()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        reporter = InfluxReporter(registry, port=port, username="u", password="hush")
        reporter.report_now()
        thread.join(10)
    assert reporter.failures == 1
    reporter.report_now()
    assert reporter.failures == 2
    assert log.text.count(f"InfluxDB at 127.0.0.1:{port}") == 2
    assert ("who?!" in log.text) == (b"401" in answer)
    assert "hush" not in log.text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_of_influxdb_is_a_failure(status: int, log: pytest.LogCaptureFixture) -> None:
    """The real pyformance follows it with a GET and the password, and any answer then counts as written."""
    registry, requests = ours.MetricsRegistry(Clock()), list[str]()
    registry.counter("c").inc()

    class Redirecting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(f"POST {self.path}")
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Location", f"http://localhost:{port}/login")
            self.end_headers()

        def do_GET(self) -> None:
            requests.append(f"GET {self.path}")
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as server:
        port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        reporter = InfluxReporter(registry, port=port, username="u", password="hush", autocreate_database=True)
        reporter.report_now()
        server.shutdown()
    assert [request.partition("?")[0] for request in requests] == ["POST /query", "POST /write"]
    assert reporter.failures == 2
    assert log.text.count(f"it returned {status}: ") == 2
