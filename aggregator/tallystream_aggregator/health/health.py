"""The health of a command: whether it is alive and ready, and why not."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from tallystream.clock import SYSTEM_CLOCK, Clock
from tallystream.errors import ConfigError
from tallystream.kafka.reporter import KafkaReporter
from tallystream_aggregator.health.internal_metrics import InternalMetrics, Progress
from tallystream_aggregator.http_server import HttpServer, Response, health_response, metrics_response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

Stage = Literal["starting", "standing by", "running"]

MAX_SILENCE_S = 300.0
"""Seconds without a check, of what is published or for records, after which a command counts as stuck."""


class Status:
    """The status of a command. Thread-safe.

    A command that starts, stands by, makes its table again, or waits for a store is alive: a restart would not help.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._checked_s = clock.monotonic()
        self.stage: Stage = "starting"
        self._worked = False
        self.waiting_for: str | None = None

    def stand_by(self) -> None:
        """Note that another aggregator has the lease."""
        self.stage = "standing by"

    def run(self) -> None:
        """Note that the work has started."""
        self.stage, self._checked_s, self._worked = "running", self._clock.monotonic(), False

    def checked(self) -> None:
        """Note that the aggregator has read what is published, or the shipper has looked for records."""
        self._checked_s, self._worked = self._clock.monotonic(), True

    def unhealthy_reason(self) -> str | None:
        """Return why the command counts as dead, None while it is alive."""
        quiet = self._clock.monotonic() - self._checked_s
        if self.stage == "running" and self._worked and quiet > MAX_SILENCE_S and self.waiting_for is None:
            return f"the last check was {quiet:.0f} s ago"
        return None

    def unready_reason(self) -> str | None:
        """Return why the command is not ready, None when it is."""
        if self.stage in ("starting", "standing by"):
            return self.stage
        if self.waiting_for is not None:
            return f"waiting for {self.waiting_for}"
        return self.unhealthy_reason() or (None if self._worked else "the first check is not done")


REPORT_S = 10.0


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """Settings. `port` None means no HTTP server, 0 a free port. `own_metrics`: report to `metrics` as well.

    Raises:
        ConfigError: the port is out of range.
    """

    port: int | None = None
    address: str = "127.0.0.1"
    own_metrics: bool = True

    def __post_init__(self) -> None:
        if self.port is not None and not 0 <= self.port <= 65_535:
            raise ConfigError("--http-port", self.port, "give a port from 1 to 65535, or 0 for a free one")


class Health:
    """The health of one command, a context manager.

    `within` is the health of the command that runs this one in its own process. That one's server and reporter have the
    internal metrics of both, and its `/healthz` and `/readyz` answer for both.

    Raises:
        ConfigError: on entering, the server can't listen on the address.
    """

    def __init__(
        self, command: str, settings: HealthSettings, *, clock: Clock = SYSTEM_CLOCK, within: Health | None = None
    ) -> None:
        registry = None if within is None else within.internal_metrics.registry
        self.internal_metrics: InternalMetrics = InternalMetrics(command, clock, registry)
        self.status = Status(clock)
        self.port: int | None = None
        self._command = command
        self.parts: dict[str, Status] = {}
        if within is not None:
            within.parts[command] = self.status
        self.internal_metrics.set_function("tallystream.ready", lambda: int(self.status.unready_reason() is None))
        self._settings = settings
        self.progress = Progress(self.internal_metrics, clock)
        self._server: HttpServer | None = None
        self._reporter: KafkaReporter | None = None

    def __enter__(self) -> Self:
        if self._settings.port is not None:
            paths = {"/metrics": self.metrics, "/healthz": self.healthz, "/readyz": self.readyz}
            self._server = HttpServer(paths, address=self._settings.address, port=self._settings.port)
            self.port = self._server.port
            log.info("health is on %s/metrics, /healthz and /readyz", self._server.url)
        return self

    def __exit__(self, *_: object) -> None:
        if self._reporter is not None:
            self._reporter.stop()
        if self._server is not None:
            self._server.close()

    def report(self, bootstrap_servers: str, topic: str, kafka: Mapping[str, str]) -> None:
        """Report the internal metrics to the topic `metrics` every ten seconds from now on, unless that is disabled.

        The instance ID is the command at this host, the same after a restart: `aggregate@host-1`.
        """
        if not self._settings.own_metrics:
            return
        instance = f"{self._command}@{socket.gethostname()}"
        self._reporter = KafkaReporter(
            self.internal_metrics.registry,
            bootstrap_servers=bootstrap_servers,
            instance=instance,
            interval=REPORT_S,
            topic=topic,
            options=kafka,
            own_metrics=False,
        ).start()

    def unhealthy_reason(self) -> str | None:
        """Return why the command or one that it runs counts as dead, None while all are alive."""
        return self.status.unhealthy_reason() or self._reason_of_a_part(Status.unhealthy_reason)

    def unready_reason(self) -> str | None:
        """Return why the command or one that it runs is not ready, None when all are."""
        return self.status.unready_reason() or self._reason_of_a_part(Status.unready_reason)

    def metrics(self) -> Response:
        """Return the internal metrics in Prometheus' text format."""
        return metrics_response(self.internal_metrics.families())

    def healthz(self) -> Response:
        """Return whether the command is alive."""
        return health_response(self.unhealthy_reason(), command=self._command, stage=self.status.stage)

    def readyz(self) -> Response:
        """Return whether the command is ready: not while it starts, stands by, or waits for a store."""
        return health_response(self.unready_reason(), command=self._command, stage=self.status.stage)

    def _reason_of_a_part(self, reason_of: Callable[[Status], str | None]) -> str | None:
        reasons = ((command, reason_of(status)) for command, status in self.parts.items())
        return next((f"{command}: {reason}" for command, reason in reasons if reason is not None), None)
