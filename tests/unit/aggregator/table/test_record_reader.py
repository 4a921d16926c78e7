"""What the reader of records reads, which the table and verify share, is what the standard library's JSON has."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.malformed import BAD_METRICS, ODD, ODD_METRICS, POISON
from support.schedules import play, play_steadily, schedules
from support.spoilt import spoilt
from tallystream.metric_types import NAMES
from tallystream.record import Header, Histogram, Metric, ShortForm, Sketch
from tallystream_aggregator.table.records.decode import DecodedSnapshot, Forget, read_value
from tallystream_aggregator.table.records.refusals import Refusal
from tallystream_aggregator.verify.lives import require_valid

MAX_METRICS = 8
HEADER = '{"v":1,"app":"shop","life":"01HF7YAT00AAAAAAAAAAAAAAAA","part":0,"seq":1,"ts":0,"every_ms":1000,"final":false'


def require_as_in_json(value: bytes) -> None:
    """Require that whatever is read of a record is in its JSON, and that each metric is read or refused."""
    found = read_value(value, MAX_METRICS)
    if isinstance(found, Refusal):
        return
    content = json.loads(value, parse_int=lambda digits: int(digits[:99]))  # longer ones are in no sum
    if not isinstance(found, DecodedSnapshot):
        content = content["forget"] if isinstance(found, Forget) else content
        assert all(getattr(found, name) == content[name] for name in found.__struct_fields__ if name in content)
        return
    for name in Header.__struct_fields__:
        assert getattr(found.snapshot, name) == content.get(name, True if name == "complete" else None)
    listed = content["metrics"][:MAX_METRICS]
    assert len(found.metrics) + len(found.rejected) + found.more_rejected == len(listed)
    assert len(listed) + found.over_limit == len(content["metrics"])
    rest = iter(listed)
    assert all(any(is_read_from(metric, one) for one in rest) for metric in found.metrics if is_valid(metric))


def is_read_from(metric: Metric, content: Any) -> bool:
    """Tell whether a metric is the one in a value of JSON, which may be a spoilt one of the same name."""
    try:
        return is_in_json(metric, content)
    except (TypeError, ValueError, LookupError, AttributeError):
        return False


def is_in_json(metric: Metric, content: Any) -> bool:
    """Tell whether a metric is the one in a value of JSON."""
    if not isinstance(content, dict) or (metric.type, metric.name) != (content.get("type"), content.get("name")):
        return False
    for name in NAMES[metric.type]:
        found, wanted = getattr(metric, name), content.get(name)
        if wanted is None and (name.endswith("_rate") or (name == "sum" and content.get("count") == 0)):
            wanted = 0.0
        if found != (b64decode(wanted) if isinstance(found, bytes) else wanted):
            return False
    has_sketch = not isinstance(metric, Histogram) or is_same_sketch(metric.sketch, content.get("sketch"))
    return has_sketch and metric.tags == content.get("tags", {})


def is_same_sketch(found: Sketch | None, content: Any) -> bool:
    """Tell whether a sketch is the one in a value of JSON."""
    if found is None or content is None:
        return found is content
    numbers = content["scale"], content.get("zero_count", 0)
    sides = [
        [(run["offset"], run.get("width", 1), b64decode(run["counts"])) for run in content.get(side, [])]
        for side in ("positive", "negative")
    ]
    runs = [[(run.offset, run.width, run.counts) for run in side] for side in (found.positive, found.negative)]
    return (found.scale, found.zero_count) == numbers and runs == sides


@pytest.mark.parametrize("value", POISON, ids=lambda value: repr(value[:60]))
def test_what_is_no_record_is_refused(value: bytes) -> None:
    """As a whole."""
    assert isinstance(read_value(value, MAX_METRICS), Refusal)


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value[:60]))
def test_an_unusual_short_form_is_read(value: bytes) -> None:
    """Unknown fields may have any value, and of two fields with one name the last one counts."""
    assert isinstance(read_value(value, MAX_METRICS), ShortForm)
    require_as_in_json(value)


@pytest.mark.parametrize("metric", [*BAD_METRICS, *ODD_METRICS], ids=lambda metric: metric[:60])
def test_a_metric_that_can_not_be_read_is_refused_alone(metric: str) -> None:
    """An unusual one is read."""
    value = f'{HEADER},"metrics":[{metric},{{"type":"counter","name":"other","count":1}}]}}'.encode()
    require_as_in_json(value)
    found = read_value(value, MAX_METRICS)
    assert isinstance(found, DecodedSnapshot)
    names = [one.name for one in found.metrics if is_valid(one)]
    assert (len(names), names[-1]) == (2 if metric in ODD_METRICS else 1, "other")


def is_valid(metric: Metric) -> bool:
    """Tell whether verify has nothing against a metric."""
    try:
        require_valid(msgspec.structs.replace(metric))
    except (ValueError, OverflowError):
        return False
    return True


@examples(200)
@given(schedules, st.randoms(use_true_random=False))
def test_what_is_read_of_spoilt_snapshots_is_in_their_json(schedule: list[int], chance: random.Random) -> None:
    """Numbers that are missing, or are none; other metrics, fields and texts."""
    for record in spoilt(chance, play_steadily(schedule)):
        require_as_in_json(record.value or b"")


@examples(60)
@given(schedules)
def test_what_is_read_of_everything_that_may_be_on_the_topic_is_in_its_json(schedule: list[int]) -> None:
    """Snapshots of all types, the short form, forget records, and what is none of these."""
    for record in play(schedule):
        require_as_in_json(record.value or b"")
