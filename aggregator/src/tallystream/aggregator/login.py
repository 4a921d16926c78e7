"""Whether a broker can be reached with the login given: known at once, not after every client's own patience."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE_S = 20.0
log = logging.getLogger(__name__)
_REFUSED = {KafkaError._AUTHENTICATION, KafkaError._SSL}  # noqa: SLF001 (its names)


class LoginError(TallystreamError):
    """The broker refused the user, or TLS failed; no secret is in the message."""


def log_in(kafka: Mapping[str, str], *, timeout: float = PATIENCE_S) -> None:
    """Return when the broker has answered with `kafka`'s options, librdkafka's; `timeout` is in seconds.

    Raises:
        LoginError: the broker refused the user or the certificate, or was refused by ours.
        KafkaException: there was no answer in time.
    """
    refused: list[KafkaError] = []
    told: set[int] = set()

    def on_error(error: KafkaError) -> None:
        # In TLS 1.3 a broker refuses a client's certificate after the handshake, by an alert.
        if error.code() in _REFUSED or "SSL alert number" in error.str():
            refused.append(error)
        elif error.code() not in told:
            told.add(error.code())
            log.warning("%s", error.str())

    # What librdkafka would write to stderr comes from a thread of its own, maybe after the sentence that counts.
    options: dict[str, Any] = {"log_level": 0, **kafka, "error_cb": on_error}
    admin = AdminClient(options)
    began = time.monotonic()
    while True:
        try:
            admin.list_topics(timeout=1.0)
        except KafkaException:
            admin.poll(0)
            if refused:
                raise LoginError(
                    f"broker {kafka['bootstrap.servers']}: it refused us ({refused[0].str()}); check "
                    "security.protocol, sasl.mechanisms, sasl.username, sasl.password, ssl.ca.location and, where the "
                    "broker asks for a client certificate, ssl.certificate.location and ssl.key.location."
                ) from None
            if time.monotonic() - began > timeout:
                raise
        else:
            return
