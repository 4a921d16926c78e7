"""The dead letters of points that a store rejects."""

from __future__ import annotations

import json
import math

from tallystream_aggregator.shipping.dead_letters import MAX_POINT_CHARS, dead_letter
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.verify.published import refused_record


def test_a_dead_letter_has_the_point_the_reason_and_the_store() -> None:
    """The point is a text, because JSON has no NaN."""
    point = Point("heat", {"app": "ä"}, {"sum": math.nan, "count": 2**63}, 5)
    key, value = dead_letter(point, "no good", "influxdb:http://h")
    assert key == b"heat"
    assert json.loads(value) == {
        "v": 1,
        "reason": "no good",
        "ts": 5,
        "store": "influxdb:http://h",
        "point": '{"measurement": "heat", "tags": {"app": "ä"}, "fields": {"sum": NaN, "count": 9223372036854775808}}',
    }


def test_verify_ignores_the_dead_letter_of_a_point() -> None:
    """The table accepted its record."""
    _, value = dead_letter(Point("m", {}, {"v": 1}, 5), "r", "s")
    assert refused_record(value) is None


def test_a_dead_letter_has_a_limited_size() -> None:
    """The measurement, the point and the reason are truncated."""
    key, value = dead_letter(Point("m" * 10_000, {"k": "v" * 200_000}, {"v": 1}, 5), "r" * 10_000, "s")
    assert len(key) == 1024
    assert len(json.loads(value)["point"]) == MAX_POINT_CHARS
    assert len(json.loads(value)["reason"]) == 1000
