"""Hostile records of an OTLP topic, in protobuf and in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from benchmarks.limits.snapshots import BYTES, NOW_MS, Input, input_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TOPIC = "otlp_metrics"
NOW_NS = NOW_MS * 1_000_000
START_NS = NOW_NS - 10**12
CUMULATIVE = pb.AGGREGATION_TEMPORALITY_CUMULATIVE


def one(parser: str, name: str, values: Iterable[bytes], before: Iterable[bytes] = ()) -> Input:
    """Return an input of OTLP."""
    return input_of(parser, name, [(None, value) for value in values], [(None, value) for value in before], TOPIC)


def varint(number: int) -> bytes:
    """Return a number as protobuf has it."""
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def message(field: int, content: bytes) -> bytes:
    """Return a field with a message or a text."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def attribute(key: str, value: str) -> KeyValue:
    """Return an attribute."""
    return KeyValue(key=key, value=AnyValue(string_value=value))


def request(*metrics: pb.Metric, instance: str = "i", app: str = "a", scope: str = "") -> bytes:
    """Return a record with one resource."""
    data = pb.MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.extend([attribute("service.name", app), attribute("service.instance.id", instance)])
    found = resource.scope_metrics.add()
    found.scope.name = scope
    found.metrics.extend(metrics)
    return data.SerializeToString()


def counter(
    name: str,
    value: int = 1,
    start_ns: int = START_NS,
    time_ns: int = NOW_NS,
    tags: dict[str, str] | None = None,
) -> pb.Metric:
    """Return a counter with one point."""
    point = pb.NumberDataPoint(start_time_unix_nano=start_ns, time_unix_nano=time_ns, as_int=value)
    point.attributes.extend(attribute(*tag) for tag in (tags or {}).items())
    found = pb.Metric(name=name)
    found.sum.CopyFrom(pb.Sum(is_monotonic=True, aggregation_temporality=CUMULATIVE, data_points=[point]))
    return found


def histogram(bounds: int, tags: int, points: int = 1, name: str = "e", size: int = 512) -> pb.Metric:
    """Return a histogram with explicit bounds, whose points have tags of `size` characters."""
    made = []
    for number in range(points):
        point = pb.HistogramDataPoint(start_time_unix_nano=START_NS, time_unix_nano=NOW_NS, count=bounds + 1)
        point.explicit_bounds.extend(range(bounds))
        point.bucket_counts.extend([1] * (bounds + 1))
        keys = [f"t{n}-".ljust(min(size, 128), "x") for n in range(tags)]
        point.attributes.extend(attribute(key, f"v{number}".ljust(size, "y")) for key in keys)
        made.append(point)
    found = pb.Metric(name=name)
    found.histogram.CopyFrom(pb.Histogram(aggregation_temporality=CUMULATIVE, data_points=made))
    return found


def exponential(points: Iterable[dict[str, Any]]) -> bytes:
    """Return a record with points of exponential histograms, each with its own tag."""
    found = pb.Metric(name="e")
    found.exponential_histogram.aggregation_temporality = CUMULATIVE
    for number, fields in enumerate(points):
        point = found.exponential_histogram.data_points.add()
        point.start_time_unix_nano, point.time_unix_nano = START_NS, NOW_NS
        point.scale, offset, counts = fields["scale"], fields["offset"], fields["counts"]
        point.positive.offset = offset
        point.positive.bucket_counts.extend(counts)
        point.count = min(sum(counts) * (2 if "negative" in fields else 1), 2**64 - 1)
        if "negative" in fields:
            point.negative.offset = fields["negative"]
            point.negative.bucket_counts.extend(counts)
        point.attributes.append(attribute("k", str(number)))
    return request(found)


def protobuf() -> Iterator[Input]:
    """Yield records in protobuf: empty messages, many resources, streams with start times of their own."""
    empty = BYTES // 2
    point = message(1, b"")
    for name, value in {
        "empty resources": message(1, b"") * empty,
        "empty scopes": message(1, message(2, b"") * empty),
        "empty metrics": message(1, message(2, message(2, b"") * empty)),
        "a resource for each empty metric": message(1, message(2, message(2, b""))) * (BYTES // 6),
        "empty points": message(1, message(2, message(2, message(1, b"m") + message(5, point * empty)))),
        "empty attributes": message(1, message(1, point * empty) + message(2, message(2, message(1, b"m")))),
        "empty exemplars": message(
            1, message(2, message(2, message(1, b"m") + message(5, message(1, message(5, b"") * empty))))
        ),
        "unknown fields": message(15, b"") * empty,
        "nested attributes": message(1, message(1, message(1, _nested(90)))),
        "random bytes": bytes(n * 7 % 256 for n in range(BYTES)),
        "a truncated record": request(*(counter(f"m{n}") for n in range(1_000)))[:-3],
    }.items():
        yield one("OTLP protobuf", name, [value])
    sums = [counter(f"m{n}") for n in range(1_000)]
    yield one("OTLP protobuf", "usual: 1,000 sums", [request(*sums)])
    second, third = (
        request(*(counter(f"m{n}", 1 + later, time_ns=NOW_NS + later) for n in range(1_000))) for later in (1, 2)
    )
    yield one("OTLP protobuf", "the second values", [second], [request(*sums)])
    yield one("OTLP protobuf", "the third values", [third], [request(*sums), second])
    yield one("OTLP protobuf", "one point a record", [request(counter("m", n, time_ns=NOW_NS + n)) for n in range(900)])
    yield one(
        "OTLP protobuf",
        "one point a record of 1,000 metrics",
        [request(counter("m1", n, time_ns=NOW_NS + n)) for n in range(900)],
        [request(*sums)],
    )
    yield one("OTLP protobuf", "sums without a start", [request(*(counter(f"m{n}", start_ns=0) for n in range(1_200)))])
    yield one(
        "OTLP protobuf",
        "sums that fall",
        [request(*(counter(f"m{n}", 0, time_ns=NOW_NS + 1) for n in range(1_000)))],
        [request(*sums)],
    )
    for count in (1_000, 4_000):
        apart = [counter(f"m{n}", start_ns=START_NS + n * 10**6, time_ns=START_NS + n * 10**6) for n in range(count)]
        common = [counter(f"m{n}", start_ns=START_NS + n * 10**6) for n in range(count)]
        yield one("OTLP protobuf", f"{count} streams, each after the others", [request(*apart)])
        yield one("OTLP protobuf", f"{count} streams with one time", [request(*common)])
    later = [
        request(*(counter(f"m{n}", at, START_NS + n * 10**6, NOW_NS + at) for n in range(1_000))) for at in range(3)
    ]
    yield one("OTLP protobuf", "the third values of 1000 streams", later[2:], later[:2])
    yield one("OTLP protobuf", "a new instance each", [request(counter("m"), instance=f"i{n}") for n in range(600)])
    for name, requests in {
        "900 resources of a record, a new instance each": [request(counter("m"), instance=f"i{n}") for n in range(900)],
        "900 scopes of a record": [request(counter("m"), scope=f"s{n}") for n in range(900)],
        "4,000 resources with a refused point each": [message(1, _refused(n)) for n in range(4_000)],
    }.items():
        yield one("OTLP protobuf", name, [b"".join(requests)])
    yield one("OTLP protobuf", "a new scope each", [request(counter("m"), scope=f"s{n}") for n in range(600)])
    yield one(
        "OTLP protobuf",
        "long attributes",
        [request(*(counter("m", n, tags={f"k{k}": "v" * 500 for k in range(20)}) for n in range(6)))],
    )
    yield one(
        "OTLP protobuf",
        "33 attributes",
        [request(*(counter(f"m{n}", tags={f"k{k}": "" for k in range(33)}) for n in range(200)))],
    )


def _refused(number: int) -> bytes:
    """Return the data of a resource whose only metric has a name and no data."""
    return message(2, message(2, message(1, b"%024x" % number)))


def _nested(depth: int) -> bytes:
    """Return an attribute whose value is a list in a list and so on."""
    value = message(1, b"x")
    for _ in range(depth):
        value = message(5, message(1, value))
    return message(1, b"service.instance.id") + message(2, value)


def json() -> Iterator[Input]:
    """Yield records in JSON: empty objects, unknown and long values."""

    def nested(inner: str) -> Callable[[str], str]:
        return lambda item: inner.replace("%", ",".join([item] * (BYTES // (len(item) + 1))))

    resources, scopes = '{"resourceMetrics":[%]}', '{"resourceMetrics":[{"scopeMetrics":[%]}]}'
    metrics = scopes.replace("%", '{"metrics":[%]}')
    points = metrics.replace("%", '{"name":"m","gauge":{"dataPoints":[%]}}')
    buckets = metrics.replace("%", '{"name":"m","histogram":{"dataPoints":[{"bucketCounts":[%]}]}}')
    attributes = resources.replace(
        "%", '{"resource":{"attributes":[{"key":"k","value":%}]},"scopeMetrics":[{"metrics":[{"name":"m"}]}]}'
    )
    for name, value in {
        "empty resources": nested(resources)("{}"),
        "empty scopes": nested(scopes)("{}"),
        "empty metrics": nested(metrics)("{}"),
        "empty points": nested(points)("{}"),
        "bucket counts": nested(buckets)("0"),
        "bucket counts as texts": nested(buckets)('"0"'),
        "unknown fields": resources.replace("%", "{" + ",".join(f'"x{n}":0' for n in range(BYTES // 9)) + "}"),
        "nested lists": resources.replace("%", '{"x":' + "[" * (BYTES // 2) + "]" * (BYTES // 2) + "}"),
        "a long number": resources.replace("%", '{"x":' + "9" * BYTES + "}"),
        "a long number as text": points.replace("%", '{"asInt":"' + "9" * BYTES + '"}'),
        "many long numbers": resources.replace("%", '{"x":[' + ",".join(["9" * 4_300] * 14) + "]}"),
        "long bytes": attributes.replace("%", '{"bytesValue":"' + "A" * BYTES + '"}'),
        "surrogates": attributes.replace("%", '{"stringValue":"' + r"\ud800" * (BYTES // 6) + '"}'),
        "nothing but a brace": "{" + " " * BYTES,
    }.items():
        yield one("OTLP JSON", name, [value.encode()])


def exponentials() -> Iterator[Input]:
    """Yield exponential histograms with buckets that are fine, coarse, many, empty or far apart."""
    few = [1, 0, 0, 1]
    for scale in (-(2**31), -11, -10, 0, 20, 21, 2**31 - 1):
        for offset in (-(2**31), 0, 2**31 - 1):
            points = [{"scale": scale, "offset": offset, "counts": few}] * 700
            yield one("OTLP sketch", f"scale {scale}, offset {offset}", [exponential(points)])
    for name, points in {
        "65,000 buckets": [{"scale": 20, "offset": 0, "counts": [1] * 65_000}],
        "65,000 buckets of the finest scale": [{"scale": 2**31 - 1, "offset": 0, "counts": [1] * 65_000}],
        "65,000 empty buckets": [{"scale": 20, "offset": 0, "counts": [0] * 65_000}],
        "both signs far apart": [{"scale": 20, "offset": 2**31 - 1, "counts": [1], "negative": -(2**31)}] * 700,
        "4,096 buckets each": [{"scale": 5, "offset": -2_000, "counts": [1] * 4_000}] * 16,
        "counts of 2^60": [{"scale": 5, "offset": 0, "counts": [2**60] * 4}] * 700,
    }.items():
        yield one("OTLP sketch", name, [exponential(points)])


def explicits() -> Iterator[Input]:
    """Yield histograms with few and many explicit bounds, also with others in each record."""
    for bounds, tags, size in (
        (10, 0, 0),
        (100, 0, 0),
        (4_000, 0, 0),
        (100, 31, 8),
        (1_000, 31, 512),
        (3_000, 31, 512),
        (9_999, 31, 512),
    ):
        value = request(histogram(bounds, tags, name="e" * 300, size=size))
        yield one("OTLP histogram", f"{bounds} bounds, {tags} attributes of {size} characters", [value])
    yield one("OTLP histogram", "600 points, 1 bound", [request(histogram(1, 1, points=600, size=8))])
    usual = request(*(histogram(10, 2, name=f"h{n}", size=8) for n in range(200)))
    others = [request(histogram(3 + n, 0)) for n in range(250)]
    yield one("OTLP histogram", "other bounds in each of 250 records", others)
    yield one("OTLP histogram", "usual: 200 with 10 bounds", [usual])
    yield one("OTLP histogram", "40 points, 100 bounds", [request(histogram(100, 1, points=40, size=8))])


def inputs() -> Iterator[Input]:
    """Yield all of them."""
    for make in (protobuf, json, exponentials, explicits):
        yield from make()
