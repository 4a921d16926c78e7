"""The reporter to Graphite, with the plaintext protocol."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from tallystream.reporters.local import LocalReporter
from tallystream.validation import check_instance, free

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.record import Metric
    from tallystream.registry import MetricRegistry, Reportable
    from tallystream.reporters.filters import Values

_NOT_GRAPHITE = re.compile(r"[\s;!^=~\x00-\x1f\x7f]")


def graphite_lines(metric: Metric, values: Values, prefix: str, tags: Mapping[str, str], ts_ms: int) -> list[str]:
    """Return a plaintext line for each attribute: `prefix.name.attribute;tag=value VALUE SECONDS`.

    Tags need Graphite 1.1 or later. Characters that the format can't represent become `_`. A tag with an empty value is
    skipped, since Graphite does not accept it.
    """
    path = ".".join(graphite_name(part) for part in (prefix, metric.name) if part)
    all_tags = sorted({**tags, **{free(name, tags): value for name, value in metric.tags.items()}}.items())
    suffix = "".join(f";{graphite_name(name)}={graphite_name(value)}" for name, value in all_tags if value)
    return [f"{path}.{attribute}{suffix} {value!r} {ts_ms // 1000}" for attribute, value in values.items()]


def graphite_name(text: str) -> str:
    """Return a text with `_` for white space and each character that Graphite reserves."""
    return _NOT_GRAPHITE.sub("_", text)


class GraphiteReporter(LocalReporter):
    """Sends each snapshot to carbon over TCP: one connection for each report, one line for each attribute.

    Lines have the tags `app` and `instance`; a metric's own become `tag_app` and `tag_instance`.

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
        self._address, self._timeout, self._prefix = (host, port), timeout, prefix
        self._instance = check_instance(instance)
        super().__init__(registry, **options)

    def __repr__(self) -> str:
        host, port = self._address
        return f"<GraphiteReporter of {self.registry.app!r} to '{host}:{port}'>"

    def _write(self, metrics: list[Metric], ts_ms: int) -> int:
        import socket  # imported here because it is slow to import

        tags = {"app": self.registry.app, "instance": self._instance}
        lines = [
            line
            for metric in metrics
            for line in graphite_lines(metric, self.attributes.values(metric), self._prefix, tags, ts_ms)
        ]
        data = "".join(line + "\n" for line in lines).encode()
        with socket.create_connection(self._address, timeout=self._timeout) as connection:
            connection.sendall(data)
            # Carbon closes the connection when it has read everything, which confirms that the data was received.
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1024):
                pass
        return len(data)
