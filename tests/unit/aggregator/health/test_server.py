"""The HTTP server of /metrics, /healthz and /readyz, and the hosts that it answers to."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.request

import pytest

from support.health import ask, slow_client
from tallystream.errors import ConfigError
from tallystream.testing import ManualClock
from tallystream_aggregator import http_server as module
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.health.health import MAX_SILENCE_S
from tallystream_aggregator.http_server import HOSTS_ENV as ENV
from tallystream_aggregator.http_server import AllowedHosts, HttpServer, Response


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


def test_a_server_listens_on_ipv6() -> None:
    """As in a cluster that has nothing else. An address in a URL is in brackets."""
    server = HttpServer({"/": lambda: Response(200, "text/plain", "here")}, address="::1", port=0)
    try:
        assert server.url == f"http://[::1]:{server.port}"
        with urllib.request.urlopen(server.url, timeout=30) as answer:
            assert answer.read() == b"here"
    finally:
        server.close()


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
            HttpServer({}, port=port)


def test_a_request_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The next request gets its response."""

    def fail() -> Response:
        raise RuntimeError("an internal error")

    server = HttpServer({"/bad": fail, "/good": lambda: Response(200, "text/plain", "x")}, port=0)
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
    server = HttpServer({"/healthz": lambda: Response(200, "text/plain", "ok")}, port=0)
    try:
        with slow_client(server.port) as slow:
            assert ask(f"http://127.0.0.1:{server.port}/healthz") == (200, "ok")
            assert slow.recv(1) == b""
    finally:
        server.close()


HARMLESS = ["", "localhost", "LOCALHOST:80", "app.localhost:80", "localhost.", "127.0.0.1:9", "10.2.3.4", "[::1]:8501"]
NAMES = ["evil.example", "evil.example:8501", "localhost.evil.example", "127.0.0.1.evil.example", "lag:9400", "[", ":"]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "::1", "localhost"])
def test_a_server_on_loopback_answers_to_addresses_and_localhost(address: str) -> None:
    """DNS rebinding needs a name of the attacker's: an IP address can't be one."""
    hosts = AllowedHosts(address, env={})
    assert [hosts.refusal(host) for host in HARMLESS] == [None] * len(HARMLESS)
    assert all(hosts.refusal(host) for host in NAMES)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "", "10.2.3.4", "node-7"])
def test_a_server_on_another_address_answers_to_any_name(address: str) -> None:
    """A scrape names the service, the pod or its address. Names that are given are the only ones then."""
    hosts = AllowedHosts(address, env={})
    assert [hosts.refusal(host) for host in HARMLESS + NAMES] == [None] * (len(HARMLESS) + len(NAMES))
    limited = AllowedHosts(address, env={ENV: "lag, Metrics.example.org"})
    assert [limited.refusal(host) for host in [*HARMLESS, "lag:9400", "metrics.example.org"]] == [None] * 10
    assert limited.refusal("evil.example")


@pytest.mark.parametrize(
    ("address", "host", "status"),
    [("127.0.0.1", "evil.example", 421), ("127.0.0.1", "localhost", 200), ("0.0.0.0", "aggregator", 200)],
)
@pytest.mark.parametrize("path", ["/metrics", "/v1/groups"])
def test_every_path_of_a_server_is_protected(address: str, host: str, status: int, path: str) -> None:
    """That is `/metrics`, the health of a component and whatever else is served."""
    ok = Response(200, "text/plain", "secret")
    server = HttpServer({"/metrics": lambda: ok}, address=address, port=0, other=lambda _: ok)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": f"{host}:{server.port}"})
        answer = connection.getresponse()
        assert (answer.status, b"secret" in answer.read()) == (status, status == 200)
    finally:
        connection.close()
        server.close()
