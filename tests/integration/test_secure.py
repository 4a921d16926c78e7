"""The reporter and the aggregator with a broker that requires TLS, a client certificate and SCRAM."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from support.certificates import encrypted, self_signed
from support.commands import run, running
from support.exactness import assert_exact
from support.fleet import Fleet
from support.kafka import latest_sums
from tallystream import KafkaReporter, MetricRegistry
from tallystream_aggregator.kafka.auth import LoginError, check_login
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.broker import KafkaBroker
from tallystream_cli.servers.process import free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

USER, PASSWORD = "tally", 's3cr\\et "quoted" w0rd'
KEY_PASSWORD = "k3y-p4ssword"


class Secured(NamedTuple):
    """A broker with a listener for TLS and SCRAM; `options` are librdkafka's, without the passwords.

    `key` is the text of the client's private key that must not occur in any output.
    """

    broker: KafkaBroker
    servers: str
    options: dict[str, str]
    key: str


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker whose second listener requires a client certificate and SCRAM; the test itself uses the first one."""
    folder = tmp_path_factory.mktemp("secured")
    certificate, key = self_signed(folder, "broker")
    client_certificate, client_key = self_signed(folder, "client")
    client_key = encrypted(client_key, KEY_PASSWORD)
    keystore = folder / "keystore.pem"
    keystore.write_text(key.read_text() + certificate.read_text())
    port = free_port()
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(client_certificate),
        "listener.name.sasl_ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    with KafkaBroker(folder / "broker", listeners={"SASL_SSL": port}, properties=properties) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([upsertion]).values():
            future.result(30)
        options = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": USER,
            "ssl.ca.location": str(certificate),
            "ssl.certificate.location": str(client_certificate),
            "ssl.key.location": str(client_key),
        }
        yield Secured(broker, f"127.0.0.1:{port}", options, client_key.read_text().splitlines()[1])


def aggregate(secured: Secured, prefix: str, folder: Path) -> list[str]:
    """Return the arguments of `tallystream aggregate` over the secured listener, without the passwords."""
    options = [part for name, value in secured.options.items() for part in ("--kafka", f"{name}={value}")]
    where = ["--bootstrap-servers", secured.servers, "--topic-prefix", prefix]
    checkpoint = ["--checkpoint", str(folder / "checkpoint")]
    return ["aggregate", *where, *checkpoint, *options]


def environment(folder: Path, password: str) -> dict[str, str]:
    """Return the environment with the passwords, and with a configuration that makes Spark write its event log."""
    spark, events = folder / "spark", folder / "events"
    spark.mkdir()
    events.mkdir()
    (spark / "spark-defaults.conf").write_text(f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\n")
    return {
        "TALLYSTREAM_KAFKA_SASL_PASSWORD": password,
        "TALLYSTREAM_KAFKA_SSL_KEY_PASSWORD": KEY_PASSWORD,
        "SPARK_CONF_DIR": str(spark),
        "TALLYSTREAM_LOG_LEVEL": "debug",
    }


def assert_secret(secrets: Sequence[str], *outputs: bytes) -> None:
    """Check that no secret is in an output, neither as it is nor escaped."""
    for secret in secrets:
        for escaped in {secret, secret.replace("\\", "\\\\").replace('"', '\\"')}:
            assert not [output for output in outputs if escaped.encode() in output]


def test_reporter_and_aggregator_over_tls_and_scram(secured: Secured, topic_prefix: str, tmp_path: Path) -> None:
    """With a client certificate and a password sums are exact; no secret is in an output or a file, also of Spark."""
    topics, log = Topics(topic_prefix), tmp_path / "aggregate.log"
    create_topics(AdminClient({"bootstrap.servers": secured.broker.bootstrap_servers}), topics)
    Fleet(secured.broker.bootstrap_servers, topics.metrics, seed=5).publish(500)
    registry = MetricRegistry("orders")
    registry.counter("records.processed").inc(4711)
    options = {**secured.options, "sasl.password": PASSWORD, "ssl.key.password": KEY_PASSWORD}
    arguments = aggregate(secured, topic_prefix, tmp_path)
    with running(log, *arguments, env=environment(tmp_path, PASSWORD), spark=True) as process:
        with KafkaReporter(
            registry, bootstrap_servers=secured.servers, instance="orders-1", topic=topics.metrics, options=options
        ) as reporter:
            assert reporter.report_now(timeout=30)
        assert_exact(secured.broker, topics)
    assert process.returncode == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    sums = latest_sums(secured.broker.bootstrap_servers, topics.agg)
    assert sums["orders", "records.processed", "counter", ()].count == 4711
    assert (tmp_path / "checkpoint").stat().st_mode & 0o777 == 0o700
    assert any((tmp_path / "events").iterdir())
    folders = (tmp_path, secured.broker.log.parent)
    files = [path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert_secret((PASSWORD, KEY_PASSWORD, secured.key), *files)


def test_wrong_credentials_are_a_clear_error(secured: Secured, topic_prefix: str, tmp_path: Path) -> None:
    """With a wrong password the aggregator ends with an error and an exit code other than 0; no log has it."""
    wrong = "not-the-p4ssword"
    began = time.monotonic()
    done = run(*aggregate(secured, topic_prefix, tmp_path), "--catch-up", env=environment(tmp_path, wrong))
    seconds = time.monotonic() - began
    print(f"wrong credentials: an error after {seconds:.1f} s")  # noqa: T201
    assert done.returncode not in (0, None)
    error = done.stderr.strip().splitlines()[-1]
    assert f"broker {secured.servers}: the login was rejected" in error
    assert "sasl.password" in error
    assert "Traceback" not in done.stderr
    assert_secret((wrong, KEY_PASSWORD, secured.key), (done.stdout + done.stderr).encode())
    assert not (tmp_path / "checkpoint").exists()


def test_a_missing_client_certificate_is_a_clear_error(secured: Secured) -> None:
    """If a required client certificate is missing, the error names the options for it."""
    own = {"ssl.certificate.location", "ssl.key.location"}
    without = {name: value for name, value in secured.options.items() if name not in own}
    kafka = {**without, "sasl.password": PASSWORD, "bootstrap.servers": secured.servers}
    with pytest.raises(LoginError, match=r"the login was rejected .*ssl\.certificate\.location and ssl\.key\.location"):
        check_login(kafka)
