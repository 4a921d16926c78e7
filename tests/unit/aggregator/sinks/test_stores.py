"""What names a store: every form, every fallback, every error's sentence, and no token anywhere."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import certifi
import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.influxdb.sink import InfluxStore
from tallystream_aggregator.sinks.sqlite.reader import LocalReader
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_aggregator.sinks.stores import StoreSettings, open_reader, open_sink

if TYPE_CHECKING:
    from pathlib import Path

ENV = {
    "INFLUXDB_URL": "https://metrics.example:8086",
    "INFLUXDB_TOKEN": "token-of-env",
    "INFLUXDB_ORG": "org-of-env",
    "INFLUXDB_BUCKET": "bucket-of-env",
}


def test_a_local_store_is_a_path() -> None:
    """Everything after the first colon is the path, other colons too; nothing is taken from the environment."""
    settings = StoreSettings.parse("local:./a:b.db", retention_days=0, env=ENV)
    assert settings == StoreSettings("local", "./a:b.db", retention_days=0)
    assert settings.spec == "local:./a:b.db"


def test_influxdb_from_the_environment_alone() -> None:
    """`influxdb` takes everything from the environment."""
    assert StoreSettings.parse("influxdb", env=ENV) == StoreSettings(
        "influxdb", ENV["INFLUXDB_URL"], org="org-of-env", bucket="bucket-of-env", token="token-of-env"
    )


def test_options_go_before_the_environment() -> None:
    """What is given wins; what is not is taken from the environment; the bucket has a default."""
    settings = StoreSettings.parse("influxdb:http://localhost:8086", token="t", bucket="b", env=ENV)
    assert settings == StoreSettings("influxdb", "http://localhost:8086", org="org-of-env", bucket="b", token="t")
    least = {"INFLUXDB_TOKEN": "t", "INFLUXDB_ORG": "o"}
    assert StoreSettings.parse("influxdb:http://h", env=least).bucket == "tallystream"


def test_the_environment_is_the_processes_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `env` it is os.environ, as it is at the time of the call."""
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    assert StoreSettings.parse("influxdb").token == "token-of-env"


def test_the_token_may_lie_in_a_file(tmp_path: Path) -> None:
    """INFLUXDB_TOKEN_FILE names it, without the newline at its end; INFLUXDB_TOKEN goes before it."""
    file = tmp_path / "token"
    file.write_text("token-of-file\n")
    env = {"INFLUXDB_ORG": "o", "INFLUXDB_TOKEN_FILE": str(file)}
    assert StoreSettings.parse("influxdb:http://h", env=env).token == "token-of-file"
    assert StoreSettings.parse("influxdb:http://h", env=env | {"INFLUXDB_TOKEN": "first"}).token == "first"


def test_no_text_of_the_settings_holds_the_token() -> None:
    """Neither repr nor str nor the form that goes to logs."""
    settings = StoreSettings.parse("influxdb", env=ENV)
    assert "token-of-env" not in f"{settings!r} {settings} {settings.spec} {[settings]}"


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
        "graphite",
        "graphite:2003",
        "graphite:host",
        "graphite:host:0",
        "graphite:host:x",
        "graphite:host:65536",
        "graphite:http://host:2003",
        "graphite:user@host:2003",
        "graphite:::1:2003",
        "prometheus",
        "prometheus:",
        "prometheus:localhost",
        "prometheus:-1",
        "prometheus:host:1/metrics",
        "otlp",
        "otlp:",
        "otlp:localhost:4318",
        "otlp:ftp://h",
    ],
)
def test_an_unknown_form_is_one_sentence(spec: str) -> None:
    """It names the option and the value, and shows every form."""
    with pytest.raises(ConfigError) as caught:
        StoreSettings.parse(spec, env={})
    problem = f"--store: {spec!r} can't be used" if spec else "--store is not set"
    assert str(caught.value) == (
        f"{problem}; give local:PATH, as in local:./metrics.db, "
        "influxdb:URL, as in influxdb:http://localhost:8086, graphite:HOST:PORT, as in graphite:localhost:2003, "
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
        ("INFLUXDB_ORG", "INFLUXDB_ORG is not set; set it, or give --org."),
    ],
)
def test_what_influxdb_needs_and_lacks_is_named(missing: str, sentence: str) -> None:
    """Each missing setting has a sentence with its remedy."""
    with pytest.raises(ConfigError) as caught:
        StoreSettings.parse("influxdb", env={name: value for name, value in ENV.items() if name != missing})
    assert str(caught.value).startswith(sentence)


def test_a_token_file_that_is_not_there(tmp_path: Path) -> None:
    """The variable, the path and the reason are named."""
    path = tmp_path / "absent"
    with pytest.raises(ConfigError) as caught:
        StoreSettings.parse("influxdb:http://h", org="o", env={"INFLUXDB_TOKEN_FILE": str(path)})
    assert str(caught.value) == (
        f"INFLUXDB_TOKEN_FILE: {str(path)!r} can't be used; it can't be read: No such file or directory."
    )


def test_a_token_file_that_is_no_text(tmp_path: Path) -> None:
    """One sentence, like a file that is not there."""
    path = tmp_path / "token"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is not text"):
        StoreSettings.parse("influxdb:http://h", org="o", env={"INFLUXDB_TOKEN_FILE": str(path)})


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    """A secret in a URL would reach logs: the sentence names the place for it, without the secret."""
    for kind, variable in (("influxdb", "INFLUXDB_TOKEN"), ("otlp", "OTEL_EXPORTER_OTLP_HEADERS")):
        with pytest.raises(
            ConfigError, match=f"'{kind}:\\*\\*\\*' can't be used; .* {variable} is the secret"
        ) as caught:
            StoreSettings.parse(f"{kind}:http://user:secret-word@host:8086", env=ENV)
        assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize("days", [-1.0, float("nan"), float("inf")])
def test_a_retention_that_is_no_number_of_days(days: float) -> None:
    """Zero keeps everything; what is below it, or no number, is refused."""
    with pytest.raises(ConfigError, match="--retention-days"):
        StoreSettings.parse("local:x.db", retention_days=days, env={})


def test_graphite_and_prometheus_are_addresses() -> None:
    """A host and a port; Prometheus' host is this machine alone, and its port may be 0; IPv6 stands in brackets."""
    parse = partial(StoreSettings.parse, env={})
    assert parse("graphite:carbon:2003", prefix="live.x") == StoreSettings("graphite", "carbon:2003", prefix="live.x")
    assert parse("graphite:[::1]:2003").where == "[::1]:2003"
    assert parse("prometheus:9464").spec == "prometheus:127.0.0.1:9464"
    assert parse("prometheus:0.0.0.0:0").where == "0.0.0.0:0"
    assert parse("prometheus:[::]:9464").where == "[::]:9464"
    for spec in ("prometheus:9464", "graphite:[::1]:2003"):
        with pytest.raises(ConfigError, match="only ship writes there"):
            open_reader(parse(spec))
        with pytest.raises(ConfigError, match="--store"):
            parse(spec).require_readable()


@pytest.mark.parametrize("prefix", [".", "a.", ".a", "a..b", "a b", "a;b=c", "ä", "a\n"])
def test_a_prefix_that_would_change_a_path(prefix: str) -> None:
    """What goes before every path is elements between single dots."""
    with pytest.raises(ConfigError, match="--graphite-prefix"):
        StoreSettings.parse("graphite:h:1", prefix=prefix, env={})


def test_the_authority_of_influxdb(tmp_path: Path) -> None:
    """A file, given or named by INFLUXDB_CA_FILE; one without a certificate is refused before anything is connected."""
    file = certifi.where()
    assert StoreSettings.parse("influxdb", env=ENV | {"INFLUXDB_CA_FILE": file}).ca_file == file
    assert StoreSettings.parse("influxdb", ca_file=file, env=ENV | {"INFLUXDB_CA_FILE": "x"}).ca_file == file
    (tmp_path / "text").write_text("no certificate")
    for path in (tmp_path / "absent", tmp_path / "text", tmp_path):
        with pytest.raises(ConfigError, match="INFLUXDB_CA_FILE"):
            StoreSettings.parse("influxdb", ca_file=str(path), env=ENV)


def test_an_otlp_receiver_is_a_url_and_headers() -> None:
    """Headers are percent-encoded values; the variable for metrics has precedence; the text of settings has none."""
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
    """OTEL_EXPORTER_OTLP_HEADERS_FILE names it, with a header on each line; the variable has precedence."""
    file = tmp_path / "headers"
    file.write_text("a=1\nb=2,c=3\n")
    env = {"OTEL_EXPORTER_OTLP_HEADERS_FILE": str(file)}
    assert StoreSettings.parse("otlp:http://h", env=env).headers == (("a", "1"), ("b", "2"), ("c", "3"))
    env["OTEL_EXPORTER_OTLP_HEADERS"] = "a=first"
    assert StoreSettings.parse("otlp:http://h", env=env).headers == (("a", "first"),)
    with pytest.raises(ConfigError, match=r"OTEL_EXPORTER_OTLP_HEADERS_FILE: .* can't be read: No such file"):
        StoreSettings.parse("otlp:http://h", env={"OTEL_EXPORTER_OTLP_HEADERS_FILE": str(tmp_path / "absent")})


@pytest.mark.parametrize(
    "text", ["secret-word", "=secret-word", "a b=secret-word", "a=secret-word%0Ab", "a=secret-wörd"]
)
def test_headers_of_another_form_are_refused_and_not_repeated(text: str) -> None:
    """No name, no valid name, a value with a line break or beyond ASCII: the error shows the form, not the text."""
    with pytest.raises(ConfigError, match=r"OTEL_EXPORTER_OTLP_HEADERS: .*give name=value,name=value") as caught:
        StoreSettings.parse("otlp:http://h", env={"OTEL_EXPORTER_OTLP_HEADERS": text})
    assert "secret" not in str(caught.value)


def test_the_authority_of_an_otlp_receiver(tmp_path: Path) -> None:
    """A file that OTEL_EXPORTER_OTLP_CERTIFICATE names, and the one for metrics first; another file is refused."""
    env = {"OTEL_EXPORTER_OTLP_CERTIFICATE": "absent", "OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE": certifi.where()}
    assert StoreSettings.parse("otlp:https://h", env=env).ca_file == certifi.where()
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_CERTIFICATE"):
        StoreSettings.parse("otlp:https://h", env={"OTEL_EXPORTER_OTLP_CERTIFICATE": str(tmp_path)})


def test_opening_connects_to_nothing(tmp_path: Path) -> None:
    """Sink and reader of either kind are made without a file, a folder or a server."""
    local = StoreSettings.parse(f"local:{tmp_path / 'new' / 'x.db'}", env={})
    influxdb = StoreSettings.parse("influxdb:http://127.0.0.1:9", env=ENV)
    made = [opened(settings) for settings in (local, influxdb) for opened in (open_sink, open_reader)]
    assert [type(one) for one in made] == [LocalStore, LocalReader, InfluxStore, InfluxStore]
    for one in made:
        one.close()
    assert list(tmp_path.iterdir()) == []
