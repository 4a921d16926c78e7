"""Kafka options for Spark: librdkafka's names become those of the Java client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.certificates import encrypted, self_signed, traditional
from tallystream.errors import ConfigError
from tallystream_aggregator.spark.kafka_options import Fetch, java_options, source_options

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hidden-word"


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate, and its key in the forms in which openssl writes keys."""
    folder = tmp_path_factory.mktemp("pem")
    certificate, key = self_signed(folder, "client")
    certificate.rename(folder / "certificate.pem")
    (folder / "both.pem").write_text(key.read_text() + (folder / "certificate.pem").read_text())
    encrypted(key, SECRET).rename(folder / "des3.pem")
    encrypted(key, SECRET, "-v2", "aes-256-cbc").rename(folder / "aes.pem")
    traditional(key).rename(folder / "traditional.pem")
    key.rename(folder / "key.pem")
    return folder


def test_shared_names_get_the_prefix_of_the_connector() -> None:
    """Both clients have these options."""
    assert source_options("broker:9092", {"security.protocol": "SSL"}) == {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.security.protocol": "SSL",
    }


def test_a_certificate_authority_becomes_a_pem_truststore() -> None:
    """Librdkafka's ssl.ca.location is a truststore of type PEM to the Java client."""
    assert java_options({"ssl.ca.location": "/etc/ca.pem"}) == {
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.ssl.truststore.type": "PEM",
    }


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
        ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    ],
)
def test_user_and_password_become_a_login_of_the_mechanism(mechanism: str, module: str) -> None:
    """Quotes and backslashes in a password are escaped."""
    found = java_options({"sasl.mechanism": mechanism, "sasl.username": "ana", "sasl.password": 'a"b\\c'})
    assert found == {
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{module} required username="ana" password="a\\"b\\\\c";',
    }


def test_a_password_without_a_user_is_rejected() -> None:
    """The error names the missing option, and does not have the password."""
    with pytest.raises(ConfigError, match="together") as raised:
        java_options({"sasl.password": SECRET})
    assert SECRET not in str(raised.value)


def test_an_option_that_java_does_not_have_is_rejected() -> None:
    """The error lists the options that both clients have."""
    with pytest.raises(ConfigError, match=r"queued\.min\.messages.*security\.protocol"):
        java_options({"queued.min.messages": "1"})


def test_retries_and_timeouts_are_options_of_the_source() -> None:
    """A fetch waits for 1 ms."""
    assert Fetch(7, 250, 9_000).options() == {
        "kafka.fetch.max.wait.ms": "1",
        "fetchOffset.numRetries": "7",
        "fetchOffset.retryIntervalMs": "250",
        "kafkaConsumer.pollTimeoutMs": "9000",
    }


@pytest.mark.parametrize(
    ("given", "option"),
    [((0, 1000, 1000), "--fetch-tries"), ((1, -1, 1000), "--fetch-pause-ms"), ((1, 0, 0), "--fetch-timeout-ms")],
)
def test_an_invalid_number_of_retries_or_timeout_is_rejected(given: tuple[int, int, int], option: str) -> None:
    """The error begins with the option."""
    with pytest.raises(ConfigError, match=f"^{option}: "):
        Fetch(*given)


@pytest.mark.parametrize(
    ("certificate", "key"), [("certificate.pem", "key.pem"), ("both.pem", "both.pem"), ("certificate.pem", "des3.pem")]
)
def test_a_client_certificate_becomes_a_pem_keystore(pem: Path, certificate: str, key: str) -> None:
    """The files, or one file with both, become two texts. The key's password is passed on."""
    found = java_options(
        {
            "ssl.certificate.location": str(pem / certificate),
            "ssl.key.location": str(pem / key),
            "ssl.key.password": SECRET,
        }
    )
    wanted_key = (pem / ("key.pem" if key == "both.pem" else key)).read_text().strip()
    assert found == {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": (pem / "certificate.pem").read_text().strip(),
        "kafka.ssl.keystore.key": wanted_key,
        "kafka.ssl.key.password": SECRET,
    }


def test_certificates_may_be_given_as_texts(pem: Path) -> None:
    """Both clients accept PEM as the value of an option."""
    certificate, key = ((pem / name).read_text().strip() for name in ("certificate.pem", "key.pem"))
    assert java_options({"ssl.ca.pem": certificate, "ssl.certificate.pem": certificate, "ssl.key.pem": key}) == {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": certificate,
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": certificate,
        "kafka.ssl.keystore.key": key,
    }


def test_a_keystore_is_of_type_pkcs12() -> None:
    """Librdkafka has no other type. The Java client needs the type as an option."""
    assert java_options({"ssl.keystore.location": "/etc/client.p12", "ssl.keystore.password": SECRET}) == {
        "kafka.ssl.keystore.type": "PKCS12",
        "kafka.ssl.keystore.location": "/etc/client.p12",
        "kafka.ssl.keystore.password": SECRET,
    }


@pytest.mark.parametrize(
    ("names", "error"),
    [
        ({"ssl.key.location": "key.pem"}, "ssl.certificate.location and ssl.key.location together"),
        ({"ssl.certificate.location": "certificate.pem"}, "ssl.certificate.location and ssl.key.location together"),
        ({"ssl.certificate.location": "none.pem", "ssl.key.location": "key.pem"}, "No such file"),
        ({"ssl.certificate.location": "key.pem", "ssl.key.location": "key.pem"}, "it has no certificate"),
        ({"ssl.certificate.location": "certificate.pem", "ssl.key.location": "certificate.pem"}, "PKCS#8"),
        ({"ssl.certificate.location": "certificate.pem", "ssl.key.location": "traditional.pem"}, "openssl pkcs8"),
        ({"ssl.certificate.location": "certificate.pem", "ssl.key.location": "aes.pem"}, "PBES2.*openssl pkcs12"),
        ({"ssl.keystore.location": "client.p12", "ssl.key.location": "key.pem"}, "not both"),
    ],
)
def test_a_client_certificate_that_java_cannot_use_is_rejected(pem: Path, names: dict[str, str], error: str) -> None:
    """The error has a remedy."""
    with pytest.raises(ConfigError, match=error):
        java_options({name: str(pem / value) for name, value in names.items()})


def test_no_error_has_a_key(pem: Path) -> None:
    """The key is the value of an option."""
    for name in ("aes.pem", "traditional.pem"):
        key = (pem / name).read_text()
        with pytest.raises(ConfigError) as raised:
            java_options({"ssl.certificate.pem": (pem / "certificate.pem").read_text(), "ssl.key.pem": key})
        assert key.splitlines()[1] not in str(raised.value)


def test_the_check_of_the_host_name_can_be_turned_off() -> None:
    """Librdkafka's `none` is an empty text to the Java client."""
    assert java_options({"ssl.endpoint.identification.algorithm": "none"}) == {
        "kafka.ssl.endpoint.identification.algorithm": ""
    }


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI", ""])
def test_a_user_needs_a_mechanism_with_a_password(mechanism: str) -> None:
    """The error lists these mechanisms, and does not have the password."""
    with pytest.raises(ConfigError, match="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512") as raised:
        java_options({"sasl.mechanism": mechanism, "sasl.username": "ana", "sasl.password": SECRET})
    assert SECRET not in str(raised.value)


def test_an_incomplete_login_is_rejected() -> None:
    """OAUTHBEARER has no options for the Java client. Another mechanism lacks its user."""
    with pytest.raises(ConfigError, match="client certificate"):
        java_options({"sasl.mechanisms": "OAUTHBEARER"})
    with pytest.raises(ConfigError, match=r"sasl\.username and sasl\.password"):
        java_options({"sasl.mechanisms": "SCRAM-SHA-512"})
