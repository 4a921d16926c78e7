"""The sink of InfluxDB: what a response means, TLS, and the encoding of names and tags."""

from __future__ import annotations

import gzip
import json
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.certificates import self_signed
from support.http_stub import HttpStub, Request, Response
from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.sinks.base import Point, SinkUnavailableError
from tallystream_aggregator.sinks.influxdb.sink import RESERVED_KEYS, InfluxStore, decode, encode_name, encode_value
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink, open_store
from tallystream_cli import influx_tokens

POINT = Point("organization name", {"app": "shop"}, {"v": 1.0}, 1_700_000_000_000)


class Server(HttpStub):
    """A server that answers every request with `status` and `message`: InfluxDB, or a page of something else."""

    status, message, is_influxdb, csv = 204, "", True, ""

    def __init__(self) -> None:
        super().__init__(self._answer)

    def _answer(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(501)
        text = json.dumps({"message": self.message}) if self.is_influxdb else "<html>Log in</html>"
        return Response(self.status, b"" if self.status == 204 else (self.csv or text).encode())

    def answer(self, status: int, message: str) -> None:
        """Give this answer from now on."""
        self.status, self.message = status, message


@pytest.fixture
def server() -> Iterator[Server]:
    """A server."""
    with Server() as made:
        yield made


@pytest.fixture
def store(server: Server) -> Iterator[InfluxStore]:
    """A store at the server."""
    made = InfluxStore(f"http://{server.address}", token="token", org="org", bucket="bucket")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("status", "reason"),
    [(400, "refuses a write of no points: 400"), (413, "refuses"), (422, "refuses"), (200, "answers a write with 200")],
)
def test_the_setup_of_another_server_names_the_url(
    server: Server, store: InfluxStore, status: int, reason: str
) -> None:
    """The error is permanent: it is not an outage. Only status 204 confirms a write: a proxy may require a login."""
    server.status, server.is_influxdb = status, False
    with pytest.raises(ConfigError, match=rf"^--store: 'influxdb:http://{server.address}' .*the server {reason}"):
        store.setup()
    if status == 200:
        with pytest.raises(ConfigError, match="answers a write with 200"):
            store.write([POINT])


def test_a_refused_point_may_have_any_name(server: Server, store: InfluxStore) -> None:
    """InfluxDB's message quotes the name. It is no error of the settings, whatever the name is."""
    server.answer(400, 'field type conflict: input field "v" on measurement "organization name" is type float')
    (rejected,) = store.write([POINT])
    assert rejected.reason.endswith(server.message)


@pytest.mark.parametrize("message", ["dropped {} points outside retention policy of duration 1h", "old dropped={}"])
def test_points_that_are_all_refused_are_one_request(message: str) -> None:
    """InfluxDB says how many it dropped. Old sums may be beyond the bucket's retention by the thousand."""
    requests = []

    def answer(request: Request) -> Response:
        lines = gzip.decompress(request.body).splitlines()
        dropped = sum(line.endswith(b" 1") for line in lines)
        requests.append((len(lines), dropped))
        reason = f"failure writing points to database: partial write: {message.format(dropped)}"
        return Response(422, json.dumps({"message": reason}).encode()) if dropped else Response(204)

    old, new = replace(POINT, ts_ms=1), replace(POINT, ts_ms=2)
    with HttpStub(answer) as server:
        store = InfluxStore(server.url, token="token", org="org", bucket="bucket")
        assert [one.point for one in store.write([old] * 8 + [new] * 8)] == [old] * 8
        store.close()
    assert requests == [(16, 8), (8, 8), (8, 0)]


def test_the_error_of_a_query_says_what_it_means(server: Server, store: InfluxStore) -> None:
    """An unknown organization is a wrong setting, another refusal names the server, and an outage passes."""
    server.answer(400, "organization name 'org' not found")
    with pytest.raises(ConfigError, match="there is no such bucket in the organization 'org'"):
        store.measurements()
    server.answer(400, "compilation failed")
    with pytest.raises(TallystreamError, match=r"^InfluxDB http://127\.0\.0\.1:\d+: compilation failed"):
        store.measurements()
    server.answer(500, "organization name can't be read")
    with pytest.raises(SinkUnavailableError):
        store.measurements()


def test_values_of_another_type_are_left_out(server: Server, store: InfluxStore) -> None:
    """Somebody else may have written to the bucket: then a shard has another type of the field."""
    server.status = 200
    for kind, value, wanted in (("long", "5", [5]), ("string", "5", []), ("boolean", "true", [])):
        server.csv = f"#datatype,string,long,dateTime:RFC3339,{kind},string,string,string\n#group,{',false' * 7}\n"
        server.csv += "#default,_result,,,,,,\n,result,table,_time,_value,_field,_measurement,app\n"
        server.csv += f",,0,2026-01-01T00:00:00Z,{value},count,n,a\n"
        assert [one.values for one in store.read("n", ["count"], start_ms=0, end_ms=2)] == [wanted] * bool(wanted)


@pytest.fixture
def env(server: Server, tmp_path: Path) -> dict[str, str]:
    """The variables of a client. The server uses TLS."""
    own = self_signed(tmp_path, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*own)
    server.server.socket = context.wrap_socket(server.server.socket, server_side=True)
    return {
        "INFLUXDB_URL": f"https://{server.address}",
        "INFLUXDB_TOKEN": "token",
        "INFLUXDB_ORG": "org",
        "INFLUXDB_CA_FILE": str(own[0]),
    }


def test_a_server_is_trusted_if_its_authority_is_named(env: dict[str, str]) -> None:
    """Without INFLUXDB_CA_FILE each call raises an error that names it."""
    sink = open_sink(StoreSettings.parse("influxdb", env=env))
    sink.setup()
    sink.close()
    del env["INFLUXDB_CA_FILE"]
    untrusting = StoreSettings.parse("influxdb", env=env)
    sink, reader = open_sink(untrusting), open_store(untrusting)
    for call in (sink.setup, lambda: sink.write([POINT]), reader.measurements):
        with pytest.raises(ConfigError, match="INFLUXDB_CA_FILE is not set; the certificate of https://"):
            call()
    sink.close()
    reader.close()


def test_the_creation_of_tokens_trusts_the_same_authority(
    env: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The request reaches the server, which answers 501. Without INFLUXDB_CA_FILE there is an error of TLS."""
    assert influx_tokens.main([str(tmp_path)], env) == 2
    assert "InfluxDB rejects it (501)" in capsys.readouterr().err
    del env["INFLUXDB_CA_FILE"]
    assert influx_tokens.main([str(tmp_path)], env) == 1
    assert "SSL" in capsys.readouterr().err


@pytest.mark.parametrize("plain", ["flights.processed", "two words", "a,b=c", "größe 🦀", 'say "hi"', "app-1"])
def test_plain_text_is_not_changed(plain: str) -> None:
    """Grafana shows the names that were reported."""
    assert encode_name(plain) == encode_value(plain) == plain


@given(
    st.text(st.characters(exclude_categories=["Cs"]))
    | st.text("%_#\\\n\x00time0A5F", max_size=6)
    | st.sampled_from(sorted(RESERVED_KEYS))
)
def test_every_text_is_decoded_as_it_was_encoded(text: str) -> None:
    """The code has no control character and no backslash, and is never empty. A name is not a reserved one."""
    for stored in (encode_name(text), encode_value(text)):
        assert decode(stored) == text
        assert stored
        assert not any(character < " " or character in "\\\x7f" for character in stored)
    assert encode_name(text)[0] not in "_#"
    assert encode_name(text) not in RESERVED_KEYS


def test_a_damaged_file_of_a_token_is_written_again(tmp_path: Path) -> None:
    """It need not be text."""
    answers = {
        "GET orgs": {"orgs": [{"id": "1", "name": "org"}]},
        "GET buckets": {"buckets": [{"id": "2", "name": "bucket", "retentionRules": []}]},
        "GET authorizations": {"authorizations": []},
        "POST authorizations": {"id": "3", "token": "given", "orgID": "1", "permissions": []},
    }

    def answer(request: Request) -> Response:
        path = request.path.partition("?")[0].removeprefix("/api/v2/")
        return Response(200, json.dumps(answers[f"{request.method} {path}"]).encode(), "application/json")

    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "token").write_bytes(b"\xff\xfe\x00")
    with HttpStub(answer) as server:
        env = {"INFLUXDB_URL": f"http://{server.address}", "INFLUXDB_TOKEN": "token"}
        env |= {"INFLUXDB_ORG": "org", "INFLUXDB_BUCKET": "bucket"}
        assert influx_tokens.main([str(tmp_path)], env) == 0
    assert {(tmp_path / name / "token").read_text() for name in influx_tokens.PERMISSIONS} == {"given"}
