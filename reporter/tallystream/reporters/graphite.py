"""The reporter to Graphite, with the plaintext protocol."""

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
    """Sends each snapshot to carbon over TCP: one connection for each report, one line for each attribute.

    Lines have the tags `app` and `instance`.

    Args:
        registry: the registry to report.
        instance: the instance ID, which becomes the tag `instance`, so that instances have separate series.
        host, port: the address of carbon.
        prefix: the prefix of all paths.
        timeout: seconds for each network operation.
        options: the arguments of `LocalReporter` (interval, include, attributes …).
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
        import socket  # imported here because it is slow to import

        tags = {"app": self.registry.app, "instance": self._instance}
        lines = [
            line
            for metric in metrics
            for line in graphite(metric, self.shape.values(metric), self._prefix, tags, ts_ms)
        ]
        data = "".join(line + "\n" for line in lines).encode()
        with socket.create_connection(self._where, timeout=self._timeout) as connection:
            connection.sendall(data)
            # Carbon closes the connection when it has read everything, which confirms that the data was received.
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1024):
                pass
        return len(data)
