"""The reporter to Graphite, in its plaintext protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tallystream.reporters.lines import graphite
from tallystream.reporters.local import LocalReporter
from tallystream.validation import check_instance

if TYPE_CHECKING:
    from tallystream.record import Metric
    from tallystream.registry import MetricRegistry
    from tallystream.reporters.base import Reportable


class GraphiteReporter(LocalReporter):
    """Sends each snapshot to carbon over TCP: a connection a report, a line an attribute, tagged with app and instance.

    Args:
        registry: what is reported.
        instance: the instance ID, which becomes the tag `instance`: series of several instances stay apart.
        host, port: where carbon listens.
        prefix: what the paths begin with.
        timeout: seconds for carbon to accept, and to read to the end.
        options: those of every reporter (interval, include, attributes …).
    """

    kind: ClassVar[str] = "graphite"

    def __init__(
        self,
        registry: MetricRegistry | Reportable,
        *,
        instance: str,
        host: str = "localhost",
        port: int = 2003,
        prefix: str = "",
        timeout: float = 5.0,
        **options: Any,
    ) -> None:
        self._where, self._timeout, self._prefix = (host, port), timeout, prefix
        self._instance = check_instance(instance)
        super().__init__(registry, **options)

    def _write(self, metrics: list[Metric], ts_ms: int) -> int:
        import socket  # here alone, for it takes its time

        tags = {"app": self.registry.app, "instance": self._instance}
        lines = [
            line
            for metric in metrics
            for line in graphite(metric, self.shape.values(metric), self._prefix, tags, ts_ms)
        ]
        data = "".join(line + "\n" for line in lines).encode()
        with socket.create_connection(self._where, timeout=self._timeout) as connection:
            connection.sendall(data)
            # Carbon closes when it has read to the end: without that nobody knows whether it did.
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1024):
                pass
        return len(data)
