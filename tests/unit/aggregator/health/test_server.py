"""The HTTP server on a real port."""

from __future__ import annotations

import http.client
import json
import socket

import pytest

from support.health import ask, slow_client
from tallystream.errors import ConfigError
from tallystream.testing import ManualClock
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.health import server as module
from tallystream_aggregator.health.health import MAX_SILENCE_S
from tallystream_aggregator.health.server import HealthServer, Response


def request(port: int, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Return the status, the media type and the body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


def test_the_responses_follow_the_status_of_the_query() -> None:
    """They are 200, or 503 with the reason in JSON. HEAD has no body, and other paths are 404."""
    with Health("aggregate", HealthSettings(0), clock=ManualClock()) as health:
        assert health.port is not None
        status, kind, body = request(health.port, "/readyz")
        assert (status, kind) == (503, "application/json")
        expected = {"ok": False, "reason": "starting", "command": "aggregate", "stage": "starting"}
        assert json.loads(body) == expected
        assert request(health.port, "/healthz")[0] == 200
        health.status.run()
        health.status.checked()
        assert request(health.port, "/readyz?verbose")[0] == 200
        status, kind, body = request(health.port, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert 'tallystream_ready{command="aggregate"} 1.0\n' in body
        assert request(health.port, "/metrics", "HEAD")[2] == ""
        assert request(health.port, "/")[0] == 404
        port = health.port
    with pytest.raises(ConnectionRefusedError):
        request(port, "/healthz")


def test_the_health_of_a_command_includes_that_of_one_that_it_runs() -> None:
    """As of the shipper of `aggregate --store`: its metrics are served, and the reasons name it."""
    clock = ManualClock()
    with Health("aggregate", HealthSettings(0), clock=clock) as health:
        shipper = Health("ship", HealthSettings(own_metrics=False), clock=clock, within=health)
        for one in (health, shipper):
            one.status.run()
            one.status.checked()
        shipper.status.waiting_for = "the store"
        shipper.internal_metrics.add("tallystream.ship.points", 7)
        assert health.port is not None
        status, _, body = request(health.port, "/readyz")
        assert (status, json.loads(body)["reason"]) == (503, "ship: waiting for the store")
        assert request(health.port, "/healthz")[0] == 200
        metrics = request(health.port, "/metrics")[2].splitlines()
        assert 'tallystream_ship_points_total{command="ship"} 7.0' in metrics
        assert {'tallystream_ready{command="aggregate"} 1.0', 'tallystream_ready{command="ship"} 0.0'} <= {*metrics}
        shipper.status.waiting_for = None
        assert request(health.port, "/readyz")[0] == 200
        clock.advance(MAX_SILENCE_S + 1)
        health.status.checked()
        status, _, body = request(health.port, "/healthz")
        assert (status, json.loads(body)["reason"]) == (503, "ship: the last check was 301 s ago")


def test_the_error_of_a_port_in_use_names_it() -> None:
    """It names the option and the address, too."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"--http-port: {port} can't be used; it can't be listened on at 127"):
            HealthServer({}, port=port)


def test_a_request_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The next request gets its response."""

    def fail() -> Response:
        raise RuntimeError("an internal error")

    server = HealthServer({"/bad": fail, "/good": lambda: Response(200, "text/plain", "x")}, port=0)
    try:
        with pytest.raises(http.client.RemoteDisconnected):
            request(server.port, "/bad")
        assert request(server.port, "/good")[2] == "x"
    finally:
        server.close()
    assert "an internal error" in caplog.text


def test_clients_that_do_nothing_are_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others get their responses meanwhile."""
    monkeypatch.setattr(module._Handler, "timeout", 0.5)
    server = HealthServer({"/healthz": lambda: Response(200, "text/plain", "ok")}, port=0)
    try:
        with slow_client(server.port) as slow:
            assert ask(f"http://127.0.0.1:{server.port}/healthz") == (200, "ok")
            assert slow.recv(1) == b""
    finally:
        server.close()
