"""The record contract: its limits, and the equality of both ways to decode a record."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from tallystream import record
from tallystream.ulid import new_ulid, ulid_ms
from tallystream_aggregator.table.records import decode as reading
from tallystream_aggregator.table.records.refusals import Refusal

LIFE = new_ulid(1_700_000_000_000)
HEADER: dict[str, Any] = {
    "v": 1,
    "app": "orders",
    "life": LIFE,
    "part": 0,
    "seq": 1,
    "prev": 5,
    "ts": 6,
    "every_ms": 1000,
    "final": False,
}
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
counts = st.integers(0, record.MAX_COUNT)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1)
common: dict[str, Any] = {"name": texts, "tags": st.dictionaries(texts, texts, max_size=3)}
rates: dict[str, Any] = dict.fromkeys(("mean_rate", "m1_rate", "m5_rate", "m15_rate"), numbers)
spread: dict[str, Any] = {"count": counts, "sum": numbers} | dict.fromkeys(("min", "max", "p99"), st.none() | numbers)
runs = st.builds(
    record.Buckets,
    offset=st.integers(-(2**31), 2**31 - 1),
    width=st.sampled_from([1, 2, 4, 8]),
    counts=st.binary(max_size=16),
)
buckets = st.lists(runs, max_size=3).map(tuple)
sketches = st.builds(
    record.Sketch,
    scale=st.integers(-10, 20),
    zero_count=counts,
    positive=buckets,
    negative=buckets,
)
metrics = st.one_of(
    st.builds(record.Counter, **common, count=counts),
    st.builds(record.FloatCounter, **common, sum=numbers.filter(lambda value: value >= 0)),
    st.builds(record.UpDown, **common, value=numbers),
    st.builds(record.Gauge, **common, value=numbers),
    st.builds(record.Meter, **common, count=counts, **rates),
    st.builds(record.Histogram, **common, **spread, sketch=st.none() | sketches),
    st.builds(record.Timer, **common, **spread, **rates),
    st.builds(record.Position, **common, start=counts, position=counts),
)
snapshots = st.builds(
    record.Snapshot,
    app=texts,
    life=st.just(LIFE),
    part=counts,
    seq=st.integers(1, record.MAX_COUNT),
    prev=st.none() | counts,
    ts=counts,
    every_ms=st.integers(10, 3_600_000),
    final=st.booleans(),
    metrics=st.lists(metrics, max_size=4),
)


def value(*metrics: Any, **header: Any) -> bytes:
    """Return a snapshot's bytes, encoded by the standard library."""
    return json.dumps({**HEADER, **header, "metrics": metrics}).encode()


@examples(150)
@given(snapshots)
def test_decoding_returns_the_encoded_snapshot(snapshot: record.Snapshot) -> None:
    """Snapshots with any names, all types and the bounds of 64 bits are decoded unchanged; `v` is always written."""
    encoded = record.encode(snapshot)
    assert record.decode(encoded) == snapshot
    assert json.loads(encoded)["v"] == 1


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("app", ["a", "n" * 512], ["", "n" * 513, None, 1]),
        ("life", [LIFE], ["", LIFE[:-1], LIFE + "0", LIFE.lower(), "8" + LIFE[1:], LIFE[:-1] + "U", LIFE + "\n"]),
        ("part", [0, 2**63 - 1], [-1, 2**63, 1.0, "0", True]),
        ("seq", [1, 2**63 - 1], [0, 2**63]),
        ("prev", [None, 0], [-1, "1"]),
        ("ts", [0], [-1, 1.5]),
        ("every_ms", [10, 3_600_000], [9, 3_600_001]),
        ("final", [True, False], [0, None, "no"]),
        ("v", [1], [0, 2, "1", None]),
    ],
)
def test_the_bounds_of_each_field_of_the_header(field: str, good: list[Any], bad: list[Any]) -> None:
    """A value at its bound is accepted; one outside it makes the record unreadable, with the field's name."""
    for each in good:
        assert getattr(record.decode(value(**{field: each})), field) == each
    for each in bad:
        with pytest.raises(msgspec.ValidationError, match=f"{field}`"):
            record.decode(value(**{field: each}))
        assert isinstance(reading.read_value(value(**{field: each}), 100), Refusal)


@pytest.mark.parametrize(
    ("good", "tags"),
    [
        (True, {"k" * 128: "v" * 512}),
        (True, {"k": ""}),
        (True, {str(number): "" for number in range(32)}),
        (False, {"k" * 129: ""}),
        (False, {"k": "v" * 513}),
        (False, {"": ""}),
        (False, {str(number): "" for number in range(33)}),
    ],
)
def test_the_limits_of_tags(good: bool, tags: dict[str, str]) -> None:
    """Tags at their limits are accepted; tags above them cause only their metric to be rejected."""
    message = reading.read_value(value({"type": "counter", "name": "n", "count": 1, "tags": tags}), 100)
    assert isinstance(message, reading.DecodedSnapshot)
    assert (len(message.snapshot.metrics), len(message.rejected)) == ((1, 0) if good else (0, 1))


@given(st.integers(0, 2**48 - 1))
def test_the_id_of_a_life_contains_its_creation_time(made_ms: int) -> None:
    """A ULID contains its creation time in milliseconds, and is a valid ID of a life."""
    life = new_ulid(made_ms)
    assert ulid_ms(life) == made_ms
    assert record.decode(value(life=life)).life == life


HOUR_MS = 3_600_000
BORN_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("prev", "appended", "timely"),
    [
        (None, 0, True),
        (None, 24 * HOUR_MS - 1, True),
        (None, 24 * HOUR_MS, False),
        (None, -24 * HOUR_MS, True),
        (None, -24 * HOUR_MS - 1, False),
        (100 * HOUR_MS, 124 * HOUR_MS - 1, True),
        (100 * HOUR_MS, 124 * HOUR_MS, False),
        (100 * HOUR_MS, 0, True),
        (100 * HOUR_MS, -24 * HOUR_MS - 1, False),
    ],
)
def test_a_record_is_timely_by_its_append_time(prev: int | None, appended: int, *, timely: bool) -> None:
    """It is appended less than 24 h after its `prev`, or else its ULID, which is at most 24 h ahead."""
    prev_ms = None if prev is None else BORN_MS + prev
    snapshot = record.Snapshot(
        app="a", life=LIFE, part=0, seq=1, prev=prev_ms, ts=0, every_ms=1000, final=False, metrics=[]
    )
    assert record.is_timely(snapshot, BORN_MS + appended) is timely
