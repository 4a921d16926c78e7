"""The reporter to InfluxDB 2.x, with the line protocol over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tallystream.errors import ConfigError, TallystreamError
from tallystream.reporters.lines import influx
from tallystream.reporters.local import LocalReporter
from tallystream.validation import check_instance

if TYPE_CHECKING:
    from tallystream.record import Metric
    from tallystream.registry import MetricRegistry
    from tallystream.reporters.base import Reportable


class InfluxReporter(LocalReporter):
    """Writes each snapshot to InfluxDB: one point for each metric, with the time in milliseconds.

    Points have the tags `app`, `instance` and `metric_type`.

    Args:
        registry: the registry to report.
        instance: the instance ID, which becomes the tag `instance`, so that instances have separate series.
        url: the http or https address of InfluxDB.
        token, org, bucket: InfluxDB's API token, organization and bucket. The token appears in no message.
        timeout: seconds for each network operation.
        options: the arguments of `LocalReporter` (interval, include, attributes …).

    Raises:
        ConfigError: the URL is invalid, or another argument can't be used.
    """

    kind: ClassVar[str] = "influx"

    def __init__(
        self,
        registry: MetricRegistry | Reportable,
        *,
        instance: str,
        url: str,
        token: str,
        org: str,
        bucket: str,
        timeout: float = 5.0,
        **options: Any,
    ) -> None:
        from http.client import HTTPConnection, HTTPSConnection  # slow to import, and only this reporter needs it
        from urllib.parse import urlencode, urlsplit

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("url", url.rpartition("@")[2], "give http://host:port or https://host:port")
        self._connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._where, self._timeout = parts.netloc.rpartition("@")[2], timeout
        query = urlencode({"org": org, "bucket": bucket, "precision": "ms"})
        self._path = f"{parts.path.rstrip('/')}/api/v2/write?{query}"
        self._headers = {"Authorization": f"Token {token}", "Content-Type": "text/plain; charset=utf-8"}
        self._instance = check_instance(instance)
        super().__init__(registry, **options)

    def _write(self, metrics: list[Metric], ts_ms: int) -> int:
        from http.client import HTTPException

        tags = {"app": self.registry.app, "instance": self._instance}
        lines = [
            influx(metric, self.shape.values(metric), {**tags, "metric_type": metric.type}, ts_ms) for metric in metrics
        ]
        data = "\n".join(line for line in lines if line).encode()
        if not data:
            return 0
        connection = self._connect(self._where, timeout=self._timeout)
        try:
            connection.request("POST", self._path, data, self._headers)
            answer = connection.getresponse()
            body = answer.read(500).decode(errors="replace")
        except HTTPException as error:
            raise TallystreamError(f"InfluxDB's answer is no HTTP: {error!r}") from error
        finally:
            connection.close()
        if answer.status != 204:  # "no content": written
            raise TallystreamError(f"InfluxDB answered {answer.status} {answer.reason}: {body}")
        return len(data)
