"""The settings of the stores, and the errors of HTTP."""

from __future__ import annotations

import socket
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Thread

import certifi
import pytest
import urllib3

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.http import connection_problem
from tallystream_aggregator.sinks.influxdb.sink import InfluxStore
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink, open_store

ENV = {
    "INFLUXDB_URL": "https://metrics.example:8086",
    "INFLUXDB_TOKEN": "token-of-env",
    "INFLUXDB_ORG": "org-of-env",
    "INFLUXDB_BUCKET": "bucket-of-env",
}


def test_a_local_store_is_a_path() -> None:
    """The path begins after the first colon. The environment is ignored."""
    settings = StoreSettings.parse("local:./a:b.db", retention_days=0, env=ENV)
    assert settings == StoreSettings("local", "./a:b.db", retention_days=0)
    assert settings.spec == "local:./a:b.db"


def test_influxdb_may_have_all_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes its URL. By default it is that of the process. No text of the settings has the token.

    The bucket has a default.
    """
    settings = StoreSettings.parse("influxdb", env=ENV)
    assert settings == StoreSettings(
        "influxdb", ENV["INFLUXDB_URL"], org="org-of-env", bucket="bucket-of-env", token="token-of-env"
    )
    assert "token-of-env" not in f"{settings!r} {settings} {settings.spec} {[settings]}"
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    assert StoreSettings.parse("influxdb") == settings
    least = {"INFLUXDB_TOKEN": "t", "INFLUXDB_ORG": "o"}
    assert StoreSettings.parse("influxdb:http://h", env=least).bucket == "tallystream"


def test_the_token_may_be_in_a_file(tmp_path: Path) -> None:
    """INFLUXDB_TOKEN takes precedence over INFLUXDB_TOKEN_FILE. An error names variable, path and reason."""
    file = tmp_path / "token"
    env = {"INFLUXDB_ORG": "o", "INFLUXDB_TOKEN_FILE": str(file)}
    parse = partial(StoreSettings.parse, "influxdb:http://h")
    with pytest.raises(ConfigError) as caught:
        parse(env=env)
    assert str(caught.value) == (
        f"INFLUXDB_TOKEN_FILE: {str(file)!r} can't be used; it can't be read: No such file or directory."
    )
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is not UTF-8 text"):
        parse(env=env)
    file.write_text("token-of-file\n")
    assert parse(env=env).token == "token-of-file"
    assert parse(env=env | {"INFLUXDB_TOKEN": "first"}).token == "first"


@pytest.mark.parametrize("token", ["secret\nmore", "secret\x00", "sécret", "secret\x7f"])
def test_a_token_that_no_header_can_have_is_refused_without_naming_it(token: str, tmp_path: Path) -> None:
    """An HTTP client would show it in its error. A line break at the end, as in a file, is left out."""
    env = {"INFLUXDB_ORG": "o", "INFLUXDB_TOKEN": token}
    with pytest.raises(ConfigError, match=r"^INFLUXDB_TOKEN: '\*\*\*' can't be used; give the token alone") as refused:
        StoreSettings.parse("influxdb:http://h", env=env)
    assert "cret" not in str(refused.value)
    file = tmp_path / "token"
    file.write_text(token, encoding="utf-8")
    with pytest.raises(ConfigError, match="give the token alone"):
        StoreSettings.parse("influxdb:http://h", env={"INFLUXDB_ORG": "o", "INFLUXDB_TOKEN_FILE": str(file)})
    assert StoreSettings.parse("influxdb:http://h", env=env | {"INFLUXDB_TOKEN": " secret\r\n"}).token == "secret"


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "local",
        "local:",
        "sqlite:x",
        "/path/to/store.db",
        "influxdb:localhost:8086",
        "influxdb:http://h:x",
        "influxdb:http://[::1",
        "influxdb: http://h",
        "influxdb:http://h\n",
        "influxdb:http://a..b:8086",
        "influxdb:http://\u2603:8086",
        "prometheus",
        "prometheus:",
        "prometheus:localhost",
        "prometheus:-1",
        "prometheus:a..b:9464",
        "prometheus:host:1/metrics",
        "otlp",
        "otlp:",
        "otlp:localhost:4318",
        "otlp:ftp://h",
        "otlp:http://h/v1/m x",
        f"otlp:http://{'a' * 70}:4318",
    ],
)
def test_the_error_of_an_unknown_form_lists_all_forms(spec: str) -> None:
    """It names the option and the value."""
    with pytest.raises(ConfigError) as caught:
        StoreSettings.parse(spec, env={})
    problem = f"--store: {spec!r} can't be used" if spec else "--store is not set"
    assert str(caught.value) == (
        f"{problem}; give local:PATH, as in local:./metrics.db, "
        "influxdb:URL, as in influxdb:http://localhost:8086, "
        "otlp:URL, as in otlp:http://localhost:4318, or prometheus:PORT, as in prometheus:9464."
    )


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ("INFLUXDB_URL", "--store: 'influxdb' can't be used; give local:PATH"),
        (
            "INFLUXDB_TOKEN",
            "INFLUXDB_TOKEN is not set; set it, or name the token's file in INFLUXDB_TOKEN_FILE.",
        ),
        ("INFLUXDB_ORG", "INFLUXDB_ORG is not set; set it to the organization of the bucket."),
    ],
)
def test_the_error_of_a_missing_setting_has_a_remedy(missing: str, sentence: str) -> None:
    """It names the setting."""
    with pytest.raises(ConfigError) as caught:
        StoreSettings.parse("influxdb", env={name: value for name, value in ENV.items() if name != missing})
    assert str(caught.value).startswith(sentence)


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    """A secret in a URL would be logged. The error says where to put it, and does not show it."""
    for kind, variable in (("influxdb", "INFLUXDB_TOKEN"), ("otlp", "OTEL_EXPORTER_OTLP_HEADERS")):
        with pytest.raises(
            ConfigError, match=f"'{kind}:\\*\\*\\*' can't be used; .* {variable} is the secret"
        ) as caught:
            StoreSettings.parse(f"{kind}:http://user:secret-word@host:8086", env=ENV)
        assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize("days", [-1.0, float("nan"), float("inf")])
def test_an_invalid_retention_is_rejected(days: float) -> None:
    """It is negative or not a number."""
    with pytest.raises(ConfigError, match="--retention-days"):
        StoreSettings.parse("local:x.db", retention_days=days, env={})


def test_prometheus_is_an_address() -> None:
    """The default host is this machine, and the port may be 0. An IPv6 address has brackets."""
    parse = partial(StoreSettings.parse, env={})
    assert parse("prometheus:9464").spec == "prometheus:127.0.0.1:9464"
    assert parse("prometheus:0.0.0.0:0").where == "0.0.0.0:0"
    assert parse("prometheus:[::]:9464").where == "[::]:9464"
    with pytest.raises(ConfigError, match="only ship writes there"):
        open_store(parse("prometheus:9464"))
    with pytest.raises(ConfigError, match="--store"):
        parse("prometheus:9464").require_readable()


@pytest.mark.parametrize(
    ("spec", "variable", "other"),
    [
        ("influxdb", "INFLUXDB_CA_FILE", "INFLUXDB_CA_FILE"),
        ("otlp:https://h", "OTEL_EXPORTER_OTLP_CERTIFICATE", "OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE"),
    ],
)
def test_a_server_may_have_a_private_authority(tmp_path: Path, spec: str, variable: str, other: str) -> None:
    """A variable names its file; that for metrics has precedence. A file without a certificate is rejected."""
    assert StoreSettings.parse(spec, env=ENV | {variable: certifi.where()}).ca_file == certifi.where()
    assert StoreSettings.parse(spec, env=ENV | {variable: "absent", other: certifi.where()}).ca_file == certifi.where()
    (tmp_path / "text").write_text("no certificate")
    for path in (tmp_path / "absent", tmp_path / "text", tmp_path):
        with pytest.raises(ConfigError, match=variable):
            StoreSettings.parse(spec, env=ENV | {variable: str(path)})


def test_an_otlp_receiver_is_a_url_and_headers() -> None:
    """Values are percent-encoded. The variable for metrics takes precedence. The text of settings has no headers."""
    parse = partial(StoreSettings.parse, "otlp:https://h:4318")
    assert parse(env={}) == StoreSettings("otlp", "https://h:4318")
    general = {"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Basic%20YTpi==, x-org = a%2Cb%25 ,"}
    settings = parse(env=general)
    assert settings.headers == (("Authorization", "Basic YTpi=="), ("x-org", "a,b%"))
    assert "YTpi" not in f"{settings!r} {settings.spec}"
    assert parse(env=general | {"OTEL_EXPORTER_OTLP_METRICS_HEADERS": "a=b"}).headers == (("a", "b"),)
    with pytest.raises(ConfigError, match="only ship writes there"):
        settings.require_readable()


def test_the_headers_may_be_in_a_file(tmp_path: Path) -> None:
    """OTEL_EXPORTER_OTLP_HEADERS_FILE names a file with one header on each line. The variable takes precedence."""
    file = tmp_path / "headers"
    file.write_text("a=1\nb=2,c=3\n")
    env = {"OTEL_EXPORTER_OTLP_HEADERS_FILE": str(file)}
    assert StoreSettings.parse("otlp:http://h", env=env).headers == (("a", "1"), ("b", "2"), ("c", "3"))
    env["OTEL_EXPORTER_OTLP_HEADERS"] = "a=first"
    assert StoreSettings.parse("otlp:http://h", env=env).headers == (("a", "first"),)


@pytest.mark.parametrize(
    "text", ["secret-word", "=secret-word", "a b=secret-word", "a=secret-word%0Ab", "a=secret-wörd"]
)
def test_headers_of_another_form_are_refused_and_not_repeated(text: str) -> None:
    """A name is missing or invalid, or a value has a line break or is not ASCII. The error shows only the form."""
    with pytest.raises(ConfigError, match=r"OTEL_EXPORTER_OTLP_HEADERS: .*give name=value,name=value") as caught:
        StoreSettings.parse("otlp:http://h", env={"OTEL_EXPORTER_OTLP_HEADERS": text})
    assert "secret" not in str(caught.value)


def test_histograms_of_otlp_have_buckets_if_opentelemetrys_variable_says_so() -> None:
    """The names of OpenTelemetry, in any case. Another value is refused."""
    variable = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
    parse = partial(StoreSettings.parse, "otlp:http://h")
    assert not parse(env={}).buckets
    assert not parse(env={variable: "explicit_bucket_histogram"}).buckets
    assert parse(env={variable: "BASE2_exponential_bucket_histogram"}).buckets
    with pytest.raises(ConfigError, match=f"{variable}: .*give base2_exponential_bucket_histogram"):
        parse(env={variable: "exponential"})


def test_opening_a_store_does_not_connect(tmp_path: Path) -> None:
    """It needs no file, folder or server."""
    local = StoreSettings.parse(f"local:{tmp_path / 'new' / 'x.db'}", env={})
    influxdb = StoreSettings.parse("influxdb:http://127.0.0.1:9", env=ENV)
    made = [opened(settings) for settings in (local, influxdb) for opened in (open_sink, open_store)]
    assert [type(one) for one in made] == [LocalStore, LocalStore, InfluxStore, InfluxStore]
    for one in made:
        one.close()
    assert list(tmp_path.iterdir()) == []


CLOSED = "it closed the connection before its answer was complete"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", CLOSED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", CLOSED),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "its answer is not HTTP"),
        (None, "it does not answer in time"),
    ],
)
def test_what_a_server_does_is_said_in_words(answer: bytes | None, problem: str) -> None:
    """No number of an error and no name of a class is in the text, also if nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            if answer is not None:
                connection, _ = server.accept()
                connection.recv(65_536)
                connection.sendall(answer)
                connection.close()

        thread = Thread(target=serve, daemon=True)
        thread.start()
        port = server.getsockname()[1]
        assert _problem(port) == problem
        thread.join()
    assert _problem(port) == "Connection refused"


def _problem(port: int) -> str:
    with pytest.raises(urllib3.exceptions.HTTPError) as caught:
        urllib3.PoolManager(retries=False).request("GET", f"http://127.0.0.1:{port}/", timeout=0.2)
    return connection_problem(caught.value)
