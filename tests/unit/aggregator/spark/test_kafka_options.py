"""Kafka settings for Spark: librdkafka's names become the Java client's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.certificates import encrypted, self_signed, traditional
from tallystream.errors import ConfigError
from tallystream_aggregator.spark.kafka_options import Fetch, java_options, source_options

if TYPE_CHECKING:
    from pathlib import Path

HUSH = "hidden-word"


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate, and its key in the forms in which openssl writes keys."""
    folder = tmp_path_factory.mktemp("pem")
    certificate, key = self_signed(folder, "client")
    certificate.rename(folder / "certificate.pem")
    (folder / "both.pem").write_text(key.read_text() + (folder / "certificate.pem").read_text())
    encrypted(key, HUSH).rename(folder / "des3.pem")
    encrypted(key, HUSH, "-v2", "aes-256-cbc").rename(folder / "aes.pem")
    traditional(key).rename(folder / "traditional.pem")
    key.rename(folder / "key.pem")
    return folder


def test_bootstrap_servers_and_shared_names_get_the_prefix_of_the_connector() -> None:
    """A name that both clients have is passed on as it is, with the prefix that Spark's connector wants."""
    assert source_options("broker:9092", {"security.protocol": "SSL"}) == {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.security.protocol": "SSL",
    }


def test_a_certificate_authority_becomes_a_pem_truststore() -> None:
    """The file that librdkafka calls ssl.ca.location is a truststore of type PEM to the Java client."""
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
    """Quotes and backslashes in a password arrive as themselves."""
    made = java_options({"sasl.mechanism": mechanism, "sasl.username": "ana", "sasl.password": 'a"b\\c'})
    assert made == {
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{module} required username="ana" password="a\\"b\\\\c";',
    }


def test_a_user_without_a_password_is_refused_without_saying_it() -> None:
    """Half a login is one sentence that names the other half, and not the value."""
    with pytest.raises(ConfigError, match="together") as raised:
        java_options({"sasl.password": "hidden-word"})
    assert "hidden-word" not in str(raised.value)


def test_an_option_that_the_java_client_lacks_is_refused_with_those_it_has() -> None:
    """A librdkafka option without a counterpart is named, with the ones that may be given."""
    with pytest.raises(ConfigError, match=r"queued\.min\.messages.*security\.protocol"):
        java_options({"queued.min.messages": "1"})


def test_patience_is_given_in_spark_s_words() -> None:
    """Tries, the pause between two, and how long a task waits, are the source's options; a fetch hardly waits."""
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
def test_patience_that_can_not_work_names_its_option(given: tuple[int, int, int], option: str) -> None:
    """The sentence begins with the option as it is typed."""
    with pytest.raises(ConfigError, match=f"^{option}: "):
        Fetch(*given)


@pytest.mark.parametrize(
    ("certificate", "key"), [("certificate.pem", "key.pem"), ("both.pem", "both.pem"), ("certificate.pem", "des3.pem")]
)
def test_a_client_certificate_becomes_a_pem_keystore(pem: Path, certificate: str, key: str) -> None:
    """Two files, or one with both, are the two texts that the Java client wants; the key's password goes with them."""
    made = java_options(
        {
            "ssl.certificate.location": str(pem / certificate),
            "ssl.key.location": str(pem / key),
            "ssl.key.password": HUSH,
        }
    )
    wanted_key = (pem / ("key.pem" if key == "both.pem" else key)).read_text().strip()
    assert made == {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": (pem / "certificate.pem").read_text().strip(),
        "kafka.ssl.keystore.key": wanted_key,
        "kafka.ssl.key.password": HUSH,
    }


def test_certificates_may_be_given_as_texts(pem: Path) -> None:
    """What librdkafka takes as PEM in the option itself, the Java client takes as well."""
    certificate, key = ((pem / name).read_text().strip() for name in ("certificate.pem", "key.pem"))
    assert java_options({"ssl.ca.pem": certificate, "ssl.certificate.pem": certificate, "ssl.key.pem": key}) == {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": certificate,
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": certificate,
        "kafka.ssl.keystore.key": key,
    }


def test_a_keystore_is_one_of_pkcs12() -> None:
    """Librdkafka's keystore is a PKCS#12 file; the Java client has to be told."""
    assert java_options({"ssl.keystore.location": "/etc/client.p12", "ssl.keystore.password": HUSH}) == {
        "kafka.ssl.keystore.type": "PKCS12",
        "kafka.ssl.keystore.location": "/etc/client.p12",
        "kafka.ssl.keystore.password": HUSH,
    }


@pytest.mark.parametrize(
    ("names", "said"),
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
def test_a_client_certificate_that_java_can_not_use_is_refused_with_the_remedy(
    pem: Path, names: dict[str, str], said: str
) -> None:
    """The sentence says what to change."""
    with pytest.raises(ConfigError, match=said):
        java_options({name: str(pem / value) for name, value in names.items()})


def test_no_refusal_shows_a_key(pem: Path) -> None:
    """A key that is given as a text is not in the sentence that refuses it."""
    for name in ("aes.pem", "traditional.pem"):
        key = (pem / name).read_text()
        with pytest.raises(ConfigError) as raised:
            java_options({"ssl.certificate.pem": (pem / "certificate.pem").read_text(), "ssl.key.pem": key})
        assert key.splitlines()[1] not in str(raised.value)


def test_no_check_of_the_host_name_is_said_in_java_s_word() -> None:
    """Librdkafka's `none` is an empty text to the Java client, which knows no algorithm of that name."""
    assert java_options({"ssl.endpoint.identification.algorithm": "none"}) == {
        "kafka.ssl.endpoint.identification.algorithm": ""
    }


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI", ""])
def test_a_user_gets_no_login_of_another_mechanism(mechanism: str) -> None:
    """A user of a mechanism that wants none is refused, with those that take one; the password is not shown."""
    with pytest.raises(ConfigError, match="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512") as raised:
        java_options({"sasl.mechanism": mechanism, "sasl.username": "ana", "sasl.password": HUSH})
    assert HUSH not in str(raised.value)


def test_a_login_that_is_no_login_is_refused() -> None:
    """OAUTHBEARER, of which only librdkafka can be told here, and a mechanism without the user that it needs."""
    with pytest.raises(ConfigError, match="client certificate"):
        java_options({"sasl.mechanisms": "OAUTHBEARER"})
    with pytest.raises(ConfigError, match=r"sasl\.username and sasl\.password"):
        java_options({"sasl.mechanisms": "SCRAM-SHA-512"})
