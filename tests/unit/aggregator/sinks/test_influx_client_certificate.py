"""InfluxDB behind a server that requires a client certificate."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from support.certificates import encrypted, self_signed
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink
from tallystream_cli import influx_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = "k3y-p4ssword"


class Writable(BaseHTTPRequestHandler):
    """A server that accepts every write."""

    def do_POST(self) -> None:
        """Answer 204."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables of a client, while a server runs that accepts only this client."""
    server_certificate, client_certificate = (self_signed(tmp_path, name) for name in ("server", "client"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*server_certificate)
    context.load_verify_locations(client_certificate[0])
    context.verify_mode = ssl.CERT_REQUIRED
    # With TLS 1.3 the rejection follows the handshake, and is lost if the server closes the connection first.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    server = ThreadingHTTPServer(("127.0.0.1", 0), Writable)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield {
        "INFLUXDB_URL": f"https://127.0.0.1:{server.server_address[1]}",
        "INFLUXDB_TOKEN": "token",
        "INFLUXDB_ORG": "org",
        "INFLUXDB_CA_FILE": str(server_certificate[0]),
        "INFLUXDB_CERT_FILE": str(client_certificate[0]),
        "INFLUXDB_KEY_FILE": str(encrypted(client_certificate[1], PASSWORD)),
        "INFLUXDB_KEY_PASSWORD": PASSWORD,
    }
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_client_certificate_of_the_environment_is_sent(env: dict[str, str]) -> None:
    """The write succeeds. No representation of the settings has the key's password."""
    settings = StoreSettings.parse("influxdb", env=env)
    assert PASSWORD not in repr(settings)
    sink = open_sink(settings)
    sink.setup()
    sink.close()


def test_the_error_without_a_certificate_names_the_variable(env: dict[str, str]) -> None:
    """A missing setting is not an outage, so the write is not retried."""
    missing = {name: value for name, value in env.items() if "CERT" not in name and "KEY" not in name}
    sink = open_sink(StoreSettings.parse("influxdb", env=missing))
    with pytest.raises(ConfigError, match=r"INFLUXDB_CERT_FILE is not set; \S+ refuses it"):
        sink.setup()
    sink.close()


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"INFLUXDB_CERT_FILE": "/none.pem"}, "INFLUXDB_CERT_FILE"),
        ({"INFLUXDB_CERT_FILE": ""}, "INFLUXDB_KEY_FILE"),
        ({"INFLUXDB_KEY_FILE": ""}, "INFLUXDB_CERT_FILE"),
        ({"INFLUXDB_KEY_PASSWORD": "wr0ng"}, "INFLUXDB_CERT_FILE"),
        ({"INFLUXDB_KEY_PASSWORD": ""}, "INFLUXDB_CERT_FILE"),
    ],
)
def test_an_unusable_certificate_is_rejected(env: dict[str, str], changed: dict[str, str], field: str) -> None:
    """OpenSSL asks for no password, nothing is connected, and the error has no password."""
    with pytest.raises(ConfigError) as raised:
        StoreSettings.parse("influxdb", env=env | changed)
    assert raised.value.field == field
    assert not {PASSWORD, "wr0ng"} & set(str(raised.value).split())


def test_the_creation_of_tokens_sends_the_certificate(
    env: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The request reaches the server, which answers 501. Without the certificate there is an error of TLS."""
    assert influx_tokens.main([str(tmp_path)], env) == 2
    assert "InfluxDB rejects it (501)" in capsys.readouterr().err
    without = {name: value for name, value in env.items() if "CERT" not in name and "KEY" not in name}
    assert influx_tokens.main([str(tmp_path)], without) == 1
    assert "SSL" in capsys.readouterr().err
