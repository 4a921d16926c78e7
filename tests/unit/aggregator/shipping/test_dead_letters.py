"""The dead letter of a point: it says the reason, the store and the point, and is no dead letter of the table's."""

from __future__ import annotations

import json
import math

from tallystream_aggregator.shipping.dead_letters import MAX_QUOTED, letter
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.verify.published import refused_record


def test_a_letter_says_what_and_why() -> None:
    """The point is there as text, with what JSON has no number for."""
    key, value = letter(
        Point("heat", {"app": "ä"}, {"sum": math.nan, "count": 2**63}, 5), "no good", "influxdb:http://h"
    )
    assert key == b"heat"
    said = json.loads(value)
    assert said == {
        "v": 1,
        "reason": "no good",
        "ts": 5,
        "store": "influxdb:http://h",
        "point": '{"measurement": "heat", "tags": {"app": "ä"}, "fields": {"sum": NaN, "count": 9223372036854775808}}',
    }


def test_verification_passes_over_it() -> None:
    """It is about no record that the table did not take."""
    _, value = letter(Point("m", {}, {"v": 1}, 5), "r", "s")
    assert refused_record(value) is None


def test_it_is_bounded() -> None:
    """Whatever the point and the reason hold."""
    key, value = letter(Point("m" * 10_000, {"k": "v" * 200_000}, {"v": 1}, 5), "r" * 10_000, "s")
    assert len(key) == 1024
    assert len(json.loads(value)["point"]) == MAX_QUOTED
    assert len(json.loads(value)["reason"]) == 1000
