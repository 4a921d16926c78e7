"""How the OTLP sink handles each response of a receiver, which is a stub with the responses of the test."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from support.certificates import self_signed
from support.levels import sum_point
from support.otlp_receiver import OK, PROBED, Receiver, Response
from support.stores import NOW_MS
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import Point, SinkUnavailableError
from tallystream_aggregator.sinks.otlp import sink as module
from tallystream_aggregator.sinks.otlp.sink import BATCH, OtlpSink
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink

SECRET = "hush-hush-4711"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that accepts everything until a test changes `respond`."""
    with Receiver() as made:
        yield made


@pytest.fixture
def sink(receiver: Receiver) -> Iterator[OtlpSink]:
    """A sink of the receiver."""
    opened = OtlpSink(f"http://{receiver.address}")
    yield opened
    opened.close()
    opened.close()


def counters(*counts: int) -> list[Point]:
    """Return the points of one counter, one in each millisecond."""
    return [sum_point("counter", count, NOW_MS + count) for count in counts]


def test_a_request_is_compressed_protobuf_over_one_connection(receiver: Receiver) -> None:
    """It is sent to the URL of the settings, with their headers. A request without points comes first, as a check."""
    env = {"OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer%20{SECRET}, X-Scope-OrgID=team"}
    sink = open_sink(StoreSettings.parse(f"otlp:http://{receiver.address}/api/v1/otlp", env=env))
    sink.setup()
    sink.write(counters(1, 2))
    sink.write(counters(3))
    sink.close()
    assert [request.counts for request in receiver.requests] == [[], [1, 2], [3]]
    assert {request.path for request in receiver.requests} == {"/api/v1/otlp"}
    assert len({request.client_port for request in receiver.requests}) == 1
    due = {
        "content-type": "application/x-protobuf",
        "content-encoding": "gzip",
        "authorization": f"Bearer {SECRET}",
        "x-scope-orgid": "team",
    }
    for request in receiver.requests:
        assert due.items() <= request.headers.items()


@pytest.mark.parametrize("end", ["", "/"])
def test_a_url_without_a_path_gets_the_default_one(receiver: Receiver, end: str) -> None:
    """The path is /v1/metrics, as in OpenTelemetry's exporters. No header replaces those of the protocol."""
    OtlpSink(f"http://{receiver.address}{end}", headers=[("content-type", "text/plain"), ("X-A", "b")]).setup()
    (request,) = receiver.requests
    assert request.path == "/v1/metrics"
    assert request.headers.items() >= {"content-type": "application/x-protobuf", "x-a": "b"}.items()


@pytest.mark.parametrize("status", [202, 204])
def test_any_2xx_status_is_a_success(receiver: Receiver, sink: OtlpSink, status: int) -> None:
    """OTLP defines 200, but some receivers respond with another status."""
    receiver.respond = lambda _: Response(status)
    assert sink.write(counters(1)) == []


def test_a_large_write_is_several_requests_in_order(receiver: Receiver, sink: OtlpSink) -> None:
    """Each has at most BATCH points. Without points there is no request."""
    sink.write([])
    sink.write(counters(*range(2 * BATCH + 1)))
    assert [len(request.counts) for request in receiver.requests] == [BATCH, BATCH, 1]
    assert [count for request in receiver.requests for count in request.counts] == list(range(2 * BATCH + 1))


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_a_temporary_error_is_unavailable(receiver: Receiver, sink: OtlpSink, status: int) -> None:
    """The same write is then sent again completely. No point is rejected."""
    receiver.respond = lambda counts: OK if counts == [1] else Response(status, b"try later", "text/plain")
    with pytest.raises(SinkUnavailableError, match=f"/v1/metrics: {status} try later") as caught:
        sink.write(counters(2, 3))
    assert caught.value.retry_after_s == 0
    receiver.respond = lambda _: OK
    assert sink.write(counters(2, 3)) == []
    assert [request.counts for request in receiver.requests] == [[2, 3], [2, 3]]


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("7", 7, 7),
        ("0", 0, 0),
        ("100000", 3600, 3600),
        ("soon", 0, 0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0, 0),
        pytest.param(formatdate(time.time() + 1800, usegmt=True), 1, 1800, id="a date"),
        ("Fri, 31 Dec 99999 23:59:59 GMT", 0, 0),
        pytest.param("9" * 5000, 0, 0, id="too many digits"),
    ],
)
def test_retry_after(receiver: Receiver, sink: OtlpSink, header: str, least: float, most: float) -> None:
    """It is a number of seconds or a date, and counts up to an hour. An invalid or past value means no wait."""
    receiver.respond = lambda _: Response(503, retry_after=header)
    with pytest.raises(SinkUnavailableError) as caught:
        sink.write(counters(1))
    assert least <= caught.value.retry_after_s <= most


@pytest.mark.parametrize("status", [400, 409, 413, 422, 500, 501])
def test_a_refused_point_is_found_and_the_others_are_written(receiver: Receiver, sink: OtlpSink, status: int) -> None:
    """A refused request is halved and sent again, without the accepted points, until each refused point is alone."""
    bad = {3, 4, 17}
    receiver.respond = lambda counts: Response(status, b"out of order", "text/plain") if bad & {*counts} else OK
    rejected = sink.write(counters(*range(20)))
    reason = f"OTLP rejects a point of 'orders.processed' permanently: {status} out of order"
    assert rejected == [(point, reason) for point in counters(3, 4, 17)]
    accepted = [count for request in receiver.requests if not bad & {*request.counts} for count in request.counts]
    assert [count for count in accepted if [count] != PROBED] == [count for count in range(20) if count not in bad]


def test_a_receiver_that_refuses_an_empty_request_is_available(receiver: Receiver, sink: OtlpSink) -> None:
    """Such a response says nothing about points."""
    receiver.respond = lambda counts: OK if counts else Response(400)
    sink.setup()
    assert sink.write(counters(1)) == []


def test_an_address_that_refuses_every_request_is_no_receiver(receiver: Receiver, sink: OtlpSink) -> None:
    """A server without the path, or with TLS, may answer 400 to everything. So setup sends a point as well."""
    receiver.respond = lambda _: Response(400, b"unsupported path requested", "text/plain")
    with pytest.raises(ConfigError, match=r"^--store: .* can't be used; it answers 400 unsupported path requested"):
        sink.setup()
    assert len(receiver.requests) == 2


def test_a_receiver_with_internal_errors_is_unavailable(receiver: Receiver, sink: OtlpSink) -> None:
    """If it responds with 500 to everything, as with a full disk, no point is rejected, for few points and for many.

    The requests down to a single point and the probe tell that. When the receiver is available again, everything is
    written.
    """
    receiver.respond = lambda _: Response(500, b"no space left on device", "text/plain")
    with pytest.raises(SinkUnavailableError, match="500 no space left on device"):
        sink.setup()
    for number, requests in ((1, 2), (2, 3), (5 * BATCH, 11)):
        receiver.requests.clear()
        with pytest.raises(SinkUnavailableError, match="500 no space left on device"):
            sink.write(counters(*range(number)))
        assert len(receiver.requests) == requests
    receiver.respond = lambda _: OK
    receiver.requests.clear()
    assert sink.write(counters(1, 2)) == []
    assert [request.counts for request in receiver.requests] == [[1, 2]]


@pytest.mark.parametrize("accepted", [0, 3, 4])
@pytest.mark.parametrize("errors", [1, 2, 3, 4, 999])
def test_an_outage_in_a_write_rejects_no_point(
    receiver: Receiver, sink: OtlpSink, monkeypatch: pytest.MonkeyPatch, accepted: int, errors: int
) -> None:
    """Whenever it begins and ends: points that were accepted before say nothing about those after them.

    It may end between the request of a single point and the probe after it.
    """
    monkeypatch.setattr(module, "BATCH", 10)
    answers = [*[OK] * accepted, *[Response(500)] * errors]
    receiver.respond = lambda _: answers.pop(0) if answers else OK
    points = counters(*range(48))
    if errors > 4:
        with pytest.raises(SinkUnavailableError):
            sink.write(points)
    else:
        assert sink.write(points) == []


def test_the_message_of_a_protobuf_error_is_the_reason(receiver: Receiver, sink: OtlpSink) -> None:
    """Errors of OTLP are a google.rpc.Status with code, message and details. The message is quoted."""
    status = b"\x08\x03\x12\x0csamples late\x1a\x07\x0a\x05other"
    receiver.respond = lambda counts: Response(400, status) if counts else OK
    assert [reason for _, reason in sink.write(counters(1))] == [
        "OTLP rejects a point of 'orders.processed' permanently: 400 samples late"
    ]
    receiver.respond = lambda _: Response(503, b"\xff\xff")
    with pytest.raises(SinkUnavailableError, match="503 Service Unavailable"):
        sink.write(counters(1))


def partial(rejected: int, message: str) -> Response:
    """Return the response of a receiver that accepted a part."""
    success = ExportMetricsPartialSuccess(rejected_data_points=rejected, error_message=message)
    return Response(200, ExportMetricsServiceResponse(partial_success=success).SerializeToString())


def test_a_partial_success_is_counted_and_not_sent_again(
    receiver: Receiver, sink: OtlpSink, caplog: pytest.LogCaptureFixture
) -> None:
    """OTLP forbids to send it again and does not name the points, so their number and the reason are logged."""
    receiver.respond = lambda _: partial(3, "duplicate")
    assert sink.write(counters(1, 2, 3)) == [(None, "duplicate")] * 3
    assert len(receiver.requests) == 1
    assert "OTLP rejects 3 data points of 3 points permanently: duplicate" in caplog.text


def test_the_point_of_a_partial_success_of_one_is_known(receiver: Receiver, sink: OtlpSink) -> None:
    """If the request has one point, that point was rejected."""
    receiver.respond = lambda _: partial(1, "duplicate")
    rejected = sink.write(counters(1))
    assert rejected == [(counters(1)[0], "OTLP rejects a point of 'orders.processed' permanently: duplicate")]


def test_a_warning_is_logged_once(receiver: Receiver, sink: OtlpSink, caplog: pytest.LogCaptureFixture) -> None:
    """A partial success without rejected points is a warning of the receiver. It is logged when it changes."""
    receiver.respond = lambda _: partial(0, "use a newer protocol")
    for count in (1, 2):
        assert sink.write(counters(count)) == []
    receiver.respond = lambda _: Response(200, b"<ok>", "text/html")
    assert sink.write(counters(3)) == []
    assert caplog.text.count("use a newer protocol") == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_access_is_a_wrong_header(receiver: Receiver, status: int) -> None:
    """It is a wrong setting. The error names the variable, and does not show its value."""
    receiver.respond = lambda _: Response(status, b"no such token", "text/plain")
    sink = OtlpSink(f"http://{receiver.address}", headers=[("Authorization", SECRET)])
    for call in (sink.setup, lambda: sink.write(counters(1))):
        with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_HEADERS: ") as caught:
            call()
        assert f"refuses access: {status} no such token" in str(caught.value)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("status", [301, 307, 404, 405, 415])
def test_a_url_that_is_no_receiver(receiver: Receiver, sink: OtlpSink, status: int) -> None:
    """The error names --store, the URL and the response. A redirect is not followed."""
    receiver.respond = lambda _: Response(status)
    spec = f"otlp:http://{receiver.address}/v1/metrics"
    with pytest.raises(ConfigError, match=f"--store: '{spec}' can't be used; it answers {status} "):
        sink.setup()
    assert len(receiver.requests) == 1


def test_a_receiver_is_trusted_if_its_authority_is_named(receiver: Receiver, tmp_path: Path) -> None:
    """With OTEL_EXPORTER_OTLP_CERTIFICATE points are sent over TLS. Without it, the error names this setting."""
    certificate, key = self_signed(tmp_path, "receiver")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    receiver.server.socket = context.wrap_socket(receiver.server.socket, server_side=True)
    spec = f"otlp:https://{receiver.address}"
    trusted = open_sink(StoreSettings.parse(spec, env={"OTEL_EXPORTER_OTLP_CERTIFICATE": str(certificate)}))
    trusted.write(counters(1))
    trusted.close()
    assert [request.counts for request in receiver.requests] == [[1]]
    stranger = open_sink(StoreSettings.parse(spec, env={}))
    for call in (stranger.setup, lambda: stranger.write(counters(2))):
        with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_CERTIFICATE is not set; the certificate of https://"):
            call()
    stranger.close()
