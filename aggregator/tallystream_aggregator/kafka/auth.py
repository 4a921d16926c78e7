"""Login check: fails with one error if no broker answers, or the login is refused, before a command starts."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.kafka import clients

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE_S = 20.0
"""How long a broker may take to answer: one that is just starting does."""

log = logging.getLogger(__name__)
_REFUSED = {KafkaError._AUTHENTICATION, KafkaError._SSL}  # noqa: SLF001 (its names)
_NO_REASON = {KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001


class LoginError(TallystreamError):
    """The broker refused the user, or TLS failed; no secret is in the message."""


def check_login(kafka: Mapping[str, str], *, timeout: float | None = None) -> None:
    """Return when the broker has answered with `kafka`'s options, librdkafka's.

    `timeout` is in seconds, `PATIENCE_S` where it is None.

    Raises:
        ConfigError: there was no answer in time, or librdkafka refuses an option.
        LoginError: the broker refused the user or the certificate, or was refused by ours.
    """
    patience_s = PATIENCE_S if timeout is None else timeout
    servers = kafka["bootstrap.servers"]
    refused: list[KafkaError] = []
    reasons: list[str] = []

    def on_error(error: KafkaError) -> None:
        # In TLS 1.3 a broker refuses a client's certificate after the handshake, by an alert.
        if error.code() in _REFUSED or "SSL alert number" in error.str():
            refused.append(error)
        elif error.code() not in _NO_REASON and (why := _plain(error.str())) not in reasons:
            reasons.append(why)
            log.warning("broker %s: %s; trying again for up to %g s", servers, why, patience_s)

    options: dict[str, Any] = {**kafka, "error_cb": on_error}
    admin = clients.admin(options)
    began = time.monotonic()
    while True:
        try:
            admin.list_topics(timeout=1.0)
        except KafkaException:
            admin.poll(0)
            if refused:
                raise LoginError(
                    f"broker {servers}: it refused us ({refused[0].str()}); check "
                    "security.protocol, sasl.mechanisms, sasl.username, sasl.password, ssl.ca.location and, where the "
                    "broker asks for a client certificate, ssl.certificate.location and ssl.key.location."
                ) from None
            if time.monotonic() - began > patience_s:
                why = reasons[-1] if reasons else f"no answer in {patience_s:g} s"
                raise ConfigError(
                    "--bootstrap-servers",
                    servers,
                    f"no broker answers there ({why}): start the broker, or correct the address",
                ) from None
        else:
            return


def _plain(said: str) -> str:
    """Return the cause alone of librdkafka's `HOST:PORT/bootstrap: Connect to … failed: CAUSE (after 0ms in …)`."""
    return re.sub(r" \(after .*\)$", "", said).rpartition(": ")[2]
