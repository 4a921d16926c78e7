"""The sink of OTLP: sends points to a receiver of OpenTelemetry metrics, as protobuf over HTTP."""

from __future__ import annotations

import gzip
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import urllib3
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.sinks.base import Point, Refused, SinkUnavailableError, send_in_halves, sift
from tallystream_aggregator.sinks.http import connection_problem, tls_error
from tallystream_aggregator.sinks.otlp.request import encode, unfit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

log = logging.getLogger(__name__)

BATCH = 1_000
"""Points in one request. A point is about five data points, so this is about 1 MB before compression.

With buckets, a histogram has about 1 KB more.
"""
TIMEOUT_S = 30.0
MAX_RETRY_AFTER_S = 3600.0
MAX_REASON = 500
"""Characters of a response that a message quotes."""
PROTOBUF = "application/x-protobuf"
REFUSED_DATA = frozenset({400, 409, 413, 422})
"""The statuses of a request whose data the receiver refuses. 409 is Thanos' answer to points that are out of order."""
TRANSIENT = frozenset({408, 429, 502, 503, 504})
"""The statuses after which the same request may succeed."""
PROBE = Point("tallystream.probe", {"app": "tallystream", "metric_type": "gauge"}, {"sum": 1.0}, 0)
"""A point that every receiver can store. It is sent with the time of now, and only after an error of the receiver."""


class OtlpSink:
    """Sends points to the receiver at `url`. A URL without a path gets the default one, `/v1/metrics`.

    Level: every point. Text fields are left out, and a point without a number is refused. The streams are cumulative
    and their start never moves. With `buckets`, histograms with a sketch are sent with their buckets.

    Delivery: at least once, up to the receiver's acknowledgement. A receiver that refuses a request gets it again in
    halves, until the refused point is alone. It also gets a request in halves to which it answers an error of its own,
    such as 500. OTLP forbids to retry such a request, and a receiver that can't name a tag gives this answer every
    time. But so does one whose disk is full. A single point is at fault if the receiver accepts the probe after it, and
    then gives this answer again.

    In a partial success the receiver has accepted the other data points and
    does not name those that it rejects: they are counted and logged, and sent nowhere else.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Iterable[tuple[str, str]] = (),
        ca_file: str = "",
        buckets: bool = False,
    ) -> None:
        self._url = url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1/metrics"
        self._ca_file, self._buckets = ca_file, buckets
        self._headers = urllib3.HTTPHeaderDict(headers)
        self._headers.update({"Content-Type": PROTOBUF, "Content-Encoding": "gzip", "User-Agent": "tallystream"})
        self._pool = urllib3.PoolManager(
            num_pools=1, retries=False, timeout=TIMEOUT_S, ca_certs=ca_file or None, cert_reqs="CERT_REQUIRED"
        )
        self._warning = ""
        self._unnamed: list[Refused] = []

    def setup(self) -> None:
        """Check that the receiver answers, with a request of no points. If it refuses that, it has to accept the probe.

        Raises:
            ConfigError: the URL, a header or the certificate is wrong.
            SinkUnavailableError: the receiver does not answer.
        """
        response = self._post(encode(()))
        if response.status in REFUSED_DATA:
            response = self._post_probe()
        if not 200 <= response.status < 300:
            raise self._error(response)

    def write(self, points: Sequence[Point]) -> list[Refused]:
        """Send the points in order, at most `BATCH` a request. Return those that the receiver never accepts.

        Raises:
            ConfigError: the URL, a header or the certificate is wrong.
            SinkUnavailableError: the receiver does not answer or is overloaded; write the same points again later.
        """
        good, bad = sift("OTLP", points, unfit)
        merged, self._unnamed = _merged(good), []
        for at in range(0, len(merged), BATCH):
            bad += send_in_halves("OTLP", merged[at : at + BATCH], self._send)
        return bad + self._unnamed

    def close(self) -> None:
        """Close the connection. It is safe to call this again."""
        self._pool.clear()

    def _send(self, points: Sequence[Point]) -> str | None:
        """Send points in one request. Return why the receiver refuses it because of one of them, None otherwise."""
        content = encode(points, buckets=self._buckets)
        response = self._post(content)
        if len(points) == 1 and response.status >= 500 and response.status not in TRANSIENT:
            if not 200 <= self._post_probe().status < 300:
                raise self._error(response)
            response = self._post(content)  # the first error may be of an outage that has just ended
        status = response.status
        if 200 <= status < 300:
            return self._rejected(response, points)
        if status not in REFUSED_DATA and (status < 500 or status in TRANSIENT):
            raise self._error(response)
        return _reason(response)

    def _post_probe(self) -> urllib3.BaseHTTPResponse:
        return self._post(encode([replace(PROBE, ts_ms=int(time.time() * 1000))]))

    def _post(self, body: bytes) -> urllib3.BaseHTTPResponse:
        content = gzip.compress(body, compresslevel=6, mtime=0)
        try:
            return self._pool.request("POST", self._url, body=content, headers=self._headers, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            untrusted = tls_error(error, self._url, "OTEL_EXPORTER_OTLP_CERTIFICATE", self._ca_file)
            raise (untrusted or self._unavailable(connection_problem(error))) from error

    def _rejected(self, response: urllib3.BaseHTTPResponse, points: Sequence[Point]) -> str | None:
        """Return why the receiver rejects a single point. Count and log what it rejects of several points."""
        try:
            partial = ExportMetricsServiceResponse.FromString(response.data).partial_success
        except DecodeError:  # a receiver that answers a text
            return None
        rejected, reason = partial.rejected_data_points, partial.error_message
        if rejected and len(points) == 1:
            return reason
        if rejected:
            self._unnamed += [Refused(None, reason)] * rejected
            log.warning("OTLP rejects %d data points of %d points permanently: %s", rejected, len(points), reason)
        elif reason and reason != self._warning:
            self._warning = reason
            log.warning("OTLP accepts the points with a warning: %s", reason)
        return None

    def _error(self, response: urllib3.BaseHTTPResponse) -> TallystreamError:
        """Return the error that a response means for all points."""
        reason = _reason(response)
        if response.status >= 500 or response.status in TRANSIENT:
            return self._unavailable(reason, _retry_after_s(response))
        if response.status in {401, 403}:
            return ConfigError("OTEL_EXPORTER_OTLP_HEADERS", "***", f"{self._url} refuses access: {reason}")
        return ConfigError("--store", f"otlp:{self._url}", f"it answers {reason}: give the URL of an OTLP receiver")

    def _unavailable(self, reason: str, retry_after_s: float = 0.0) -> SinkUnavailableError:
        return SinkUnavailableError(f"OTLP {self._url}: {reason}.", retry_after_s=retry_after_s)


def _merged(points: Iterable[Point]) -> list[Point]:
    """Return points in their order, those of one identity as one: the later fields win."""
    found: dict[tuple[str, frozenset[tuple[str, str]], int], Point] = {}
    for point in points:
        key = (point.measurement, frozenset(point.tags.items()), point.ts_ms)
        earlier = found.get(key)
        fields = point.fields if earlier is None else {**earlier.fields, **point.fields}
        found[key] = replace(point, fields=fields)
    return list(found.values())


def _reason(response: urllib3.BaseHTTPResponse) -> str:
    """Return the status and the message of a response.

    OTLP's errors are a google.rpc.Status, whose message has the number and type of that of a partial success.
    """
    text = response.data.decode(errors="replace")
    if response.headers.get("Content-Type", "").startswith(PROTOBUF):
        try:
            text = ExportMetricsPartialSuccess.FromString(response.data).error_message
        except DecodeError:
            text = ""
    return f"{response.status} {' '.join(text.split()) or response.reason or ''}".strip()[:MAX_REASON].rstrip(".")


def _retry_after_s(response: urllib3.BaseHTTPResponse) -> float:
    """Return the seconds that the receiver asks to wait, 0 if it asks for none."""
    try:
        seconds = urllib3.Retry().get_retry_after(response)
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
        return 0.0
    return min(seconds or 0.0, MAX_RETRY_AFTER_S)
