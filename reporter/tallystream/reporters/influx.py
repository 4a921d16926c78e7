"""The reporter to InfluxDB 2.x, with the line protocol over HTTP."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from tallystream.errors import ConfigError, TallystreamError
from tallystream.metric_types import WHOLE
from tallystream.reporters.local import LocalReporter
from tallystream.validation import check_instance, free, header_token

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

    from tallystream.record import Metric
    from tallystream.registry import MetricRegistry, Reportable
    from tallystream.reporters.filters import Values

_MEASUREMENT = str.maketrans({",": "\\,", " ": "\\ ", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_TAG = {**_MEASUREMENT, ord("="): "\\="}


def influx_line(metric: Metric, values: Values, tags: Mapping[str, str], ts_ms: int) -> str | None:
    r"""Return the point in InfluxDB's line protocol, its time in milliseconds, or None if it has no field.

    Counts and offsets are written as integers, all other values as floats, so that the type of a field never changes. A
    line break or tab in a name or tag is written as \n, \r or \t, as in the official client. A backslash at the end of
    one would escape the next character, so `_` is appended. A name that begins with `#` would make the line a comment,
    so `_` is put in front of it. A tag with an empty value is skipped, since InfluxDB does not accept it.
    """
    if not values:
        return None
    all_tags = sorted({**tags, **{free(name, tags): value for name, value in metric.tags.items()}}.items())
    suffix = "".join(f",{_escape(name, _TAG)}={_escape(value, _TAG)}" for name, value in all_tags if value)
    fields = ",".join(f"{name}={v}i" if name in WHOLE else f"{name}={float(v)!r}" for name, v in values.items())
    return f"{_measurement(metric.name)}{suffix} {fields} {ts_ms}"


def _measurement(name: str) -> str:
    escaped = _escape(name, _MEASUREMENT)
    return "_" + escaped if escaped[:1] in ("", "#") else escaped


def _escape(text: str, escapes: dict[int, str]) -> str:
    return (text + "_" if text.endswith("\\") else text).translate(escapes)


def _split(url: object) -> SplitResult:
    from urllib.parse import urlsplit

    text = url if isinstance(url, str) else repr(url)
    with suppress(ValueError):
        parts = urlsplit(text)
        is_sent = text.isprintable() and " " not in text and parts.path.isascii()  # http.client refuses any other
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and is_sent:
            return parts
    raise ConfigError("url", text.rpartition("@")[2], "give http://host:port or https://host:port")


def _checked_token(token: object) -> str:
    text = header_token("token", token) if isinstance(token, str) else ""
    if not text:
        raise ConfigError("token", "***", "give an API token of InfluxDB")
    return text


class InfluxReporter(LocalReporter):
    """Writes each snapshot to InfluxDB: one point for each metric, with the time in milliseconds.

    Points have the tags `app`, `instance` and `metric_type`; a metric's own become `tag_app` and so on.

    Args:
        registry: the registry to report.
        instance: the instance ID, which becomes the tag `instance`, so that instances have separate series.
        url: the http or https address of InfluxDB.
        token, org, bucket: InfluxDB's API token, organization and bucket. The token appears in no message. White
            space at its start and end, such as the line break of a file, is removed.
        timeout: seconds for each network operation.
        options: the arguments of `LocalReporter` (interval, include, attributes …).

    Raises:
        ConfigError: the URL or the token is invalid, or another argument can't be used.
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
        from urllib.parse import urlencode

        parts = _split(url)
        self._scheme, self._address, self._timeout = parts.scheme, parts.netloc.rpartition("@")[2], timeout
        query = urlencode({"org": org, "bucket": bucket, "precision": "ms"})
        self._path = f"{parts.path.rstrip('/')}/api/v2/write?{query}"
        self._headers = {"Authorization": f"Token {_checked_token(token)}", "Content-Type": "text/plain; charset=utf-8"}
        self._instance = check_instance(instance)
        super().__init__(registry, **options)

    def __repr__(self) -> str:
        return f"<InfluxReporter of {self.registry.app!r} to {self._address!r}>"

    def _write(self, metrics: list[Metric], ts_ms: int) -> int:
        tags = {"app": self.registry.app, "instance": self._instance}
        lines = [
            influx_line(metric, self.attributes.values(metric), {**tags, "metric_type": metric.type}, ts_ms)
            for metric in metrics
        ]
        data = "\n".join(line for line in lines if line).encode()
        if data:
            self._post(data)
        return len(data)

    def _post(self, data: bytes) -> None:
        """Write points. A redirect is a refusal: it is not followed, since its target would get the token."""
        from http.client import HTTPConnection, HTTPException, HTTPSConnection  # slow to import

        kind = HTTPSConnection if self._scheme == "https" else HTTPConnection
        connection = kind(self._address, timeout=self._timeout)
        try:
            connection.request("POST", self._path, data, self._headers)
            response = connection.getresponse()
            body = response.read(500).decode(errors="replace")
        except HTTPException as error:
            raise TallystreamError(f"InfluxDB did not return a valid HTTP response: {error!r}") from error
        finally:
            connection.close()
        if response.status != 204:
            raise TallystreamError(f"InfluxDB returned {response.status} {response.reason}: {body}")
