"""TLS and SCRAM for real: the reporter publishes and the aggregator sums over a broker that wants both."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from support.application import Application, assert_exact
from support.kafka import run
from tallystream.aggregator.topics import Topics, create_topics
from tallystream.compose.servers._process import free_port
from tallystream.compose.servers.broker import KafkaBroker
from tallystream.reporter import KafkaReporter, MetricRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

USER, PASSWORD = "tally", 's3cr\\et "quoted" w0rd'
LIMIT_S = 180.0


class Secured(NamedTuple):
    """A broker with a listener for TLS and SCRAM; `options` are librdkafka's, without the password."""

    broker: KafkaBroker
    servers: str
    options: dict[str, str]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker whose second listener wants TLS and SCRAM-SHA-512; the first is for the tests' own eyes."""
    folder = tmp_path_factory.mktemp("secured")
    key, certificate, keystore = folder / "key.pem", folder / "certificate.pem", folder / "keystore.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=broker"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    keystore.write_text(key.read_text() + certificate.read_text())
    port = free_port()
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
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
        }
        yield Secured(broker, f"127.0.0.1:{port}", options)


def aggregate(
    secured: Secured, prefix: str, folder: Path, password: str, *more: str
) -> subprocess.CompletedProcess[str]:
    """Sum what is there over the secured listener, the password in the environment."""
    given = [part for name, value in secured.options.items() for part in ("--kafka", f"{name}={value}")]
    return run(
        *("--log-level", "debug", "aggregate", "--bootstrap-servers", secured.servers, "--topic-prefix", prefix),
        *("--checkpoint", str(folder / "checkpoint"), "--catch-up", "--no-own-metrics", *given, *more),
        env={"TALLYSTREAM_KAFKA_SASL_PASSWORD": password},
    )


def assert_secret(password: str, done: subprocess.CompletedProcess[str], *folders: Path) -> None:
    """The password is in no output and in no file that was written."""
    looked = 0
    for escaped in {password, password.replace("\\", "\\\\").replace('"', '\\"')}:
        assert escaped not in done.stdout + done.stderr
        for path in [path for folder in folders for path in folder.rglob("*") if path.is_file()]:
            assert escaped.encode() not in path.read_bytes(), path
            looked += 1
    assert looked or not folders


def test_reporter_and_aggregator_over_tls_and_scram(secured: Secured, topic_prefix: str, tmp_path: Path) -> None:
    """What a reporter publishes over TLS and SCRAM is summed over them, exactly; the password shows nowhere."""
    topics = Topics(topic_prefix)
    create_topics(AdminClient({"bootstrap.servers": secured.broker.bootstrap_servers}), topics)
    registry = MetricRegistry("orders")
    registry.counter("records.processed").inc(4711)
    options = {**secured.options, "sasl.password": PASSWORD}
    with KafkaReporter(
        registry, bootstrap_servers=secured.servers, instance="orders-1", topic=topics.metrics, options=options
    ) as reporter:
        assert reporter.report_now(timeout=30)
    done = aggregate(secured, topic_prefix, tmp_path, PASSWORD)
    assert done.returncode == 0, done.stderr
    wanted = assert_exact(secured.broker, topics)
    assert wanted["orders", "records.processed", "counter", ()]["count"] == 4711
    assert_secret(PASSWORD, done, tmp_path, secured.broker.log.parent)


def test_a_backlog_over_tls_and_scram(secured: Secured, topic_prefix: str, tmp_path: Path) -> None:
    """The backlog's plan, which has readers of its own, gets in as well; Spark's account of it shows no password."""
    topics = Topics(topic_prefix)
    create_topics(AdminClient({"bootstrap.servers": secured.broker.bootstrap_servers}), topics)
    Application(secured.broker.bootstrap_servers, topics.metrics, seed=5).publish(500)
    done = aggregate(secured, topic_prefix, tmp_path, PASSWORD, "--max-records", "100")
    assert done.returncode == 0, done.stderr
    assert "backlog" in done.stderr
    assert_exact(secured.broker, topics)
    assert_secret(PASSWORD, done, tmp_path, secured.broker.log.parent)


def test_wrong_credentials_are_a_clear_error(secured: Secured, topic_prefix: str, tmp_path: Path) -> None:
    """A wrong password ends the aggregator with a sentence and an exit code other than 0, and is in no log."""
    wrong = "not-the-p4ssword"
    began = time.monotonic()
    done = aggregate(secured, topic_prefix, tmp_path, wrong)
    seconds = time.monotonic() - began
    print(f"wrong credentials: an error after {seconds:.1f} s")  # noqa: T201
    assert seconds < LIMIT_S
    assert done.returncode not in (0, None)
    said = done.stderr.strip().splitlines()[-1]
    assert f"broker {secured.servers}: it refused us" in said
    assert "sasl.password" in said
    assert "Traceback" not in done.stderr
    assert_secret(wrong, done)
    assert not (tmp_path / "checkpoint").exists()
