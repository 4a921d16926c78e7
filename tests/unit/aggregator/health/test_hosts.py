"""The hosts that requests may name: whoever reads a server over loopback, a network or a proxy, but no web page."""

from __future__ import annotations

import http.client

import pytest

from tallystream_aggregator.health.server import HOSTS_ENV as ENV
from tallystream_aggregator.health.server import AllowedHosts, HealthServer, Response

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
    server = HealthServer({"/metrics": lambda: ok}, address=address, port=0, other=lambda _: ok)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": f"{host}:{server.port}"})
        answer = connection.getresponse()
        assert (answer.status, b"secret" in answer.read()) == (status, status == 200)
    finally:
        connection.close()
        server.close()
