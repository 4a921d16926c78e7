"""The login check at the start of a command: fails if no broker answers, or if the broker rejects the login."""

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

MAX_WAIT_S = 20.0
"""How long a broker may take to answer, in seconds. A broker that is just starting needs some."""

log = logging.getLogger(__name__)
_REJECTED = {KafkaError._AUTHENTICATION, KafkaError._SSL}  # noqa: SLF001 (its names)
_NO_REASON = {KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001


class LoginError(TallystreamError):
    """The broker rejected the user, or TLS failed. The message contains no secret."""


def check_login(kafka: Mapping[str, str], *, max_wait_s: float | None = None) -> None:
    """Return when the broker has answered. `kafka` are librdkafka's options.

    Raises:
        ConfigError: there was no answer in `max_wait_s` seconds, by default `MAX_WAIT_S`, or librdkafka rejects an
            option.
        LoginError: the broker rejected the user or the certificate, or we rejected its certificate.
    """
    servers, limit_s = kafka["bootstrap.servers"], MAX_WAIT_S if max_wait_s is None else max_wait_s
    rejections: list[KafkaError] = []
    reasons: list[str] = []

    def on_error(error: KafkaError) -> None:
        # In TLS 1.3 a broker rejects a client's certificate after the handshake, with an alert.
        if error.code() in _REJECTED or "SSL alert number" in error.str():
            rejections.append(error)
        elif error.code() not in _NO_REASON and (why := _plain(error.str())) not in reasons:
            reasons.append(why)
            log.warning("broker %s: %s; trying again for up to %g s", servers, why, limit_s)

    options: dict[str, Any] = {**kafka, "error_cb": on_error}
    admin = clients.admin(options)
    began = time.monotonic()
    while True:
        try:
            admin.list_topics(timeout=1.0)
        except KafkaException:
            admin.poll(0)
            if rejections:
                raise LoginError(
                    f"broker {servers}: the login was rejected ({rejections[0].str()}); check "
                    "security.protocol, sasl.mechanisms, sasl.username, sasl.password, ssl.ca.location and, if the "
                    "broker requires a client certificate, ssl.certificate.location and ssl.key.location."
                ) from None
            if time.monotonic() - began > limit_s:
                why = reasons[-1] if reasons else f"no answer in {limit_s:g} s"
                raise ConfigError(
                    "--bootstrap-servers",
                    servers,
                    f"no broker answers at this address ({why}): start the broker, or correct the address",
                ) from None
        else:
            return


def _plain(text: str) -> str:
    """Return the cause in librdkafka's `HOST:PORT/bootstrap: Connect to … failed: CAUSE (after 0ms in …)`."""
    return re.sub(r" \(after .*\)$", "", text).rpartition(": ")[2]
